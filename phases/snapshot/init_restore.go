// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// initCommand is the command of a BareHost, for its journal and messages.
const initCommand = "init --restore"

// The phases that make init restore a cluster.
const filesPhase, dataPhase = "restore-files", "restore-etcd"

// BareHost is a Restore on a host that isn't a node yet, within init.
type BareHost struct{ Restore }

// NewBareHost reads the snapshot. It changes nothing.
func NewBareHost(env *step.Env, from Source) (*BareHost, error) {
	if err := checkLocalEtcd(env); err != nil {
		return nil, err
	}
	for _, name := range env.Config.SkipPhases {
		if strings.EqualFold(name, filesPhase) || strings.EqualFold(name, dataPhase) {
			return nil, fault.New("--restore does not go with --skip-phases="+name+": without it, this would be a new cluster", "leave out one of the two")
		}
	}
	b := &BareHost{Restore{Source: from}}
	err := b.resume(env)
	if err != nil || b.journal.Replaced {
		return b, err
	}
	return b, b.read(env)
}

// NoneInterrupted fails if an init that restores was interrupted here: another would go on with its data. A plan by another user than
// root can't know.
func NoneInterrupted(env *step.Env) error {
	journal, err := node.ReadEtcdJournal(env)
	if err != nil || journal.Command != initCommand {
		return host.IgnoreForbidden(err)
	}
	return interrupted(journal)
}

func interrupted(j node.EtcdJournal) error {
	return fault.New(fmt.Sprintf("`slipway %s` was interrupted here, and has to finish first", strings.TrimSpace(j.Command+" "+j.From)), "run it again, or `slipway reset`")
}

// resume reads the journal of an interrupted run. Whatever else this host holds is no business of an init that restores.
func (b *BareHost) resume(env *step.Env) (err error) {
	if b.journal, err = node.ReadEtcdJournal(env); err != nil {
		return err
	}
	b.begun = b.journal.Command != ""
	if b.begun && (b.journal.Command != initCommand || b.journal.From != b.File) {
		return interrupted(b.journal)
	}
	b.Own = manifests.LocalMember{Name: env.Config.Name, PeerURL: manifests.PeerURL(env.Config.AdvertiseAddress.String())}
	if !b.begun {
		return nil
	}
	if b.replacement, err = node.NewEtcdDataReplacement([]byte(b.journal.Manifest)); err != nil {
		return err
	}
	if b.Own, err = backup.MemberIn([]byte(b.journal.Manifest)); err != nil {
		return err
	}
	b.Data = b.replacement.Data
	if b.journal.Replaced, err = host.Exists(env.Host, b.Data); err != nil || !b.journal.Replaced {
		return err
	}
	b.served = true // perhaps for days
	if b.journal.Cluster == "" {
		return noData(env, b.Data) // an etcd has started before this restore had any data
	}
	return b.replacement.CheckData(env, b.journal.Cluster)
}

// Prepare tells init about the restore. A restored cluster has had its operators: their edits stay. And once an earlier run has begun
// to make etcd's data, it doesn't stand in the way.
func (b *BareHost) Prepare(env *step.Env) {
	env.Rerun = true
	if b.begun {
		env.Config = env.Config.With(func(n *config.Node) {
			n.IgnorePreflightErrors = append(slices.Clone(n.IgnorePreflightErrors), strings.ToLower(preflight.EtcdDataCheck(n)))
		})
	}
}

// AddTo adds the restore to init's phases.
func (b *BareHost) AddTo(workflow []step.Phase) []step.Phase {
	const last = "show-join-command"
	files := step.Phase{Name: filesPhase, Summary: "Check that the configuration fits, write the cluster's own files from the snapshot, and check that its keys are here", Run: b.restoreFiles}
	fill := step.Phase{Name: dataPhase, Summary: "Make etcd's data from the snapshot", Run: b.restoreData}
	var all []step.Phase
	for _, p := range workflow {
		switch p.Name {
		case "etcd":
			all = append(all, fill.Needing(append(slices.Clone(p.Needs), "certs/apiserver-etcd-client")...))
			p.Needs = append(slices.Clone(p.Needs), dataPhase)
		case "wait-control-plane":
			p.Children = b.endingIfFull(p.Children)
		case last:
			all = append(all, step.Phase{Name: "settle", Summary: "Wait until kubelets and controllers work with the restored state", Run: b.settle, Needs: p.Needs})
			p.Needs = append(slices.Clone(p.Needs), "settle")
		}
		if all = append(all, p); p.Name == "preflight" {
			all = append(all, files)
		}
	}
	return append(all, step.Phase{Name: "restored", Summary: "Record that the restore is complete", Run: b.finish, Needs: []string{last}})
}

// endingIfFull makes the wait for the control plane end with its cause if etcd is full: all later phases write to the API.
func (b *BareHost) endingIfFull(phases []step.Phase) []step.Phase {
	phases = slices.Clone(phases)
	for i, p := range phases {
		if p.Name == "health" {
			phases[i].Run = func(ctx context.Context, env *step.Env) error {
				err := p.Run(ctx, env)
				return cmp.Or(b.acceptsWrites(ctx, env), err)
			}
		}
	}
	return phases
}

// restoreFiles writes the files that all control planes of the cluster share, unless they're here already. The cluster's own CA and
// keys have to be here then: new ones would make it another cluster.
func (b *BareHost) restoreFiles(ctx context.Context, env *step.Env) error {
	if b.journal.Replaced {
		return nil
	}
	if err := noData(env, filepath.Join(env.Config.Cluster.Etcd.Local.DataDir, thisnode.EtcdMemberDir)); err != nil {
		return err
	}
	env.UI.Printf("Restoring the cluster from %s", b.what())
	if err := b.configured(ctx, env); err != nil {
		return err
	}
	if err := b.writeFiles(env); err != nil {
		return err
	}
	for _, name := range []string{"ca.crt", "sa.key"} {
		path := filepath.Join(env.Config.Paths.PKI, name)
		if here, err := host.Exists(env.Host, path); err != nil {
			return err
		} else if !here {
			return fault.New(fmt.Sprintf("%s does not exist, and the objects in the snapshot need it: without the cluster's CA and service account key, this would be another cluster", path),
				"copy "+env.Config.Paths.PKI+" from a backup or another control plane, or use a snapshot that was taken with --with-pki")
		}
	}
	return b.fitsHere(env)
}

// fitsHere compares the snapshot with the etcd and the API server that init will start.
func (b *BareHost) fitsHere(env *step.Env) error {
	view, err := node.HostView(env)
	if err != nil {
		return err
	}
	manifest, err := node.StaticPodYAML(env, manifests.EtcdName, view, nil)
	if err != nil {
		return err
	}
	server, err := node.StaticPodYAML(env, manifests.APIServerName, view, nil)
	if err != nil {
		return err
	}
	if b.replacement, err = node.NewEtcdDataReplacement(manifest); err != nil {
		return err
	}
	if b.Own, err = backup.MemberIn(manifest); err != nil { // arguments and patches may give it another name or URL
		return err
	}
	b.Data = b.replacement.Data
	b.journal = node.EtcdJournal{Command: initCommand, From: b.File, Manifest: string(manifest), Configuration: string(b.configuration)}
	b.Earlier = b.info.Members
	b.journal.Others = b.Names()
	if err := b.fits(env, server); err != nil {
		return err
	}
	if damage := b.damage(); damage != "" {
		env.UI.Warn(damage, "")
	}
	if outdated := b.outdated(); outdated != "" {
		env.UI.Warn(outdated, "")
	}
	for _, doubt := range b.doubts {
		env.UI.Warn("not checked: "+doubt, "")
	}
	return nil
}

// restoreData makes etcd's data, unless an earlier run did. Nothing starts etcd before init writes its static Pod. With the journal,
// whatever is in etcd's directory from then on is of this restore.
func (b *BareHost) restoreData(ctx context.Context, env *step.Env) error {
	if b.journal.Replaced {
		return nil
	}
	if err := noData(env, b.Data); err != nil { // a patch may have moved it
		return err
	}
	if err := b.journal.Write(env); err != nil {
		return err
	}
	if err := env.Host.EnsureDir(filepath.Dir(b.Data), 0o700); err != nil {
		return err
	}
	ready := func() error { return b.ready(ctx, env) }
	fill := func(dir string) error {
		made, err := b.fill(ctx, env, dir, b.Own.Name, b.Own.PeerURL, 0)
		b.journal.Cluster = node.EtcdClusterText(made)
		return err
	}
	if err := b.replacement.Build(ctx, env, ready, fill); err != nil {
		return err
	}
	if err := b.journal.Write(env); err != nil { // with the new cluster
		return err
	}
	_, err := env.Host.Rename(b.replacement.NewData, b.Data)
	return err
}

func noData(env *step.Env, dir string) error {
	here, err := host.Exists(env.Host, dir)
	if err == nil && here {
		err = fault.New("this host has data of an etcd already, in "+dir, "on a control plane, use `slipway etcd restore`; otherwise move it away")
	}
	return err
}

// ready fails if another member of the snapshot's cluster runs. Members that are silent, or whose address another host may have, are up
// to the operator. Then it checks the space.
func (b *BareHost) ready(ctx context.Context, env *step.Env) error {
	var urls []string
	for _, m := range b.info.Members {
		if m.PeerURL != "" && m.PeerURL != b.Own.PeerURL {
			urls = append(urls, m.PeerURL)
		}
	}
	var found []fault.Finding
	for _, peer := range env.Etcd.Peers(ctx, urls) {
		switch {
		case peer.Foreign(0): // the snapshot doesn't have its cluster's ID
			found = append(found, node.NewForeignFinding(peer))
		case peer.Alive():
			return fault.New(fmt.Sprintf("a member of the snapshot's etcd runs at %s. It would carry on with its own data", peer.URL),
				"join this host to its cluster instead; only if nothing in its data is needed, run `slipway reset` on its host")
		case errors.Is(peer.Err, etcd.ErrNotAsked):
			found = append(found, fault.NewFinding("", fault.Unasked, "", "whether a member of etcd runs at %s", peer.URL))
		default:
			found = append(found, fault.NewFinding("", fault.Error, "make sure that its host is off, erased or reset",
				"the member of etcd at %s does not answer, so it is not known whether it runs (%v). It would carry on with its own data", peer.URL, peer.Err))
		}
	}
	err := node.Check(ctx, env, node.EtcdOthersCheck(func() []fault.Finding { return found }), b.spaceQuestion())
	if err == nil {
		env.UI.Printf("Restoring %s to %s", b.File, b.Data)
	}
	return err
}

func (b *BareHost) finish(_ context.Context, env *step.Env) error {
	if err := env.Host.Remove(node.EtcdJournalPath(env.Config.Paths)); err != nil {
		return err
	}
	if b.served {
		env.UI.Nextf("%s by a run that was interrupted, and everything written since then is still there", b.restored())
	} else {
		env.UI.Nextf("The cluster has the state of %s", b.File)
	}
	node.SayRejoin(env, b.journal.Others)
	b.sayUpgrade(env) // the upgrade is refused while lost control planes are registered
	return nil
}
