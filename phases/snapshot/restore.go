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

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// restoreCommand is the command of a Restore, for its journal and messages.
const restoreCommand = "etcd restore"

// Restore gives this host's etcd the data of a snapshot, as a cluster of one member.
type Restore struct {
	Source
	// doubts are whatever couldn't be checked of the snapshot, unsure of the present cluster.
	doubts, unsure []string
	// another is a finding if the snapshot seems to be of another cluster.
	another []fault.Finding

	node.EtcdOthers
	replacement node.EtcdDataReplacement
	journal     node.EtcdJournal
	// begun is set if an earlier run may have stopped etcd, made if it has begun to put the new data in place, and served if etcd may have
	// run with it since: whatever was written then stays.
	begun, made, served bool
}

// NewRestore reads the snapshot, and fails unless it fits this host's cluster. Members of etcd that still run are a finding: operators
// should see the whole plan before they reset them. It changes nothing.
func NewRestore(ctx context.Context, env *step.Env, from Source) (*Restore, error) {
	if err := checkLocalEtcd(env); err != nil {
		return nil, err
	}
	r := &Restore{Source: from}
	if err := r.findEtcd(env); err != nil {
		return nil, err
	}
	if r.made {
		return r, nil // the snapshot isn't needed any more
	}
	if err := r.readSnapshot(env); err != nil {
		return nil, err
	}
	return r, r.askOthers(ctx, env)
}

func (r *Restore) askOthers(ctx context.Context, env *step.Env) error {
	r.EtcdOthers = node.EtcdOthers{Own: r.Own, Data: r.Data, Earlier: r.info.Members}
	if r.begun { // the journal has the rest, from when etcd ran
		return r.journal.WithUndoRemedy(env, r.Ask(ctx, env, "run this command again"))
	}
	if err := r.Find(ctx, env); err != nil {
		return err
	}
	r.journal.Revision, r.journal.Others = r.Revision, r.Names()
	r.noteNodes(ctx, env)
	r.compare(ctx, env)
	return nil
}

// recheck is for the time that the question took: a member may have come back, or another command may have begun or ended. The
// snapshot is the same.
func (r *Restore) recheck(ctx context.Context, env *step.Env) error {
	now := &Restore{Source: r.Source, doubts: r.doubts}
	if err := now.findEtcd(env); err != nil {
		return err
	}
	if now.begun != r.begun || now.made != r.made || now.journal.Manifest != r.journal.Manifest {
		return node.ErrEtcdChanged()
	}
	now.journal.Upgrade = cmp.Or(now.journal.Upgrade, r.journal.Upgrade)
	if !now.made {
		if err := now.askOthers(ctx, env); err != nil {
			return err
		}
	}
	*r = *now
	return nil
}

// findEtcd finds this host's etcd by its static Pod, or by the journal of an interrupted run, which has removed the Pod.
func (r *Restore) findEtcd(env *step.Env) error {
	if err := r.resume(env); err != nil {
		return err
	}
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	if !r.begun {
		manifest, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		r.journal = node.EtcdJournal{Command: restoreCommand, From: r.File, Manifest: cmp.Or(string(manifest), r.journal.Manifest)}
	}
	if r.journal.Manifest == "" {
		return fault.New("this host has no etcd to restore: "+path+" does not exist",
			"put it back; if `slipway upgrade rollback --restore-etcd` was interrupted here, run that again")
	}
	var err error
	if r.Own, err = backup.MemberIn([]byte(r.journal.Manifest)); err == nil {
		r.replacement, err = node.NewEtcdDataReplacement([]byte(r.journal.Manifest))
	}
	r.replacement.OldData, r.Data = r.journal.OldData, r.replacement.Data
	return errors.WithMessage(err, path)
}

// resume reads the journal of an interrupted run. While etcd's data is whole, another snapshot may take over: before the
// replacement, the first may not be readable any more, and after it, etcd may not start with the data, or with that of a recovery.
// In between, the interrupted run has to finish.
func (r *Restore) resume(env *step.Env) (err error) {
	if r.journal, err = node.ReadEtcdJournal(env); err != nil {
		return err
	}
	if r.begun, err = (node.EtcdDataReplacement{OldData: r.journal.OldData}).Started(env); err != nil {
		return err
	}
	moved, err := node.EtcdDataReplacement{OldData: r.journal.OldData}.Moved(env)
	switch {
	case err != nil:
		return err
	case !r.begun:
		r.journal = node.EtcdJournal{}
	case r.journal.Command == restoreCommand && r.journal.From == r.File:
		r.made, r.served = moved || r.journal.Replaced, r.journal.Replaced
	case r.journal.Replaced || !moved:
		r.begun, r.journal = false, node.EtcdJournal{Manifest: r.journal.Manifest}
	default:
		return r.journal.Unfinished()
	}
	return nil
}

func (r *Restore) readSnapshot(env *step.Env) error {
	if err := r.read(env); err != nil {
		return err
	}
	server, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	if err != nil {
		return err
	}
	return r.fits(env, server)
}

// noteNodes notes the present Nodes, if the API answers: after the restore, nobody knows which have joined since. A Node without the
// label may have lost its marks to an earlier restore, so it gets them all.
func (r *Restore) noteNodes(ctx context.Context, env *step.Env) {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	nodes, err := env.Cluster.Nodes(limited)
	if err != nil {
		r.unsure = append(r.unsure, "which Nodes have joined since the snapshot, because the API does not answer")
	}
	r.journal.Nodes, r.journal.Unmarked = nil, nil
	for i := range nodes {
		if _, marked := nodes[i].Labels[cluster.LabelControlPlane]; marked && nodes[i].Name == thisnode.RegisteredName(env.Host, env.Config) {
			r.journal.Unmarked = node.MarkNames(node.MarkLacking(&nodes[i], node.ControlPlaneMark(env.Config)))
		}
		r.journal.Nodes = append(r.journal.Nodes, nodes[i].Name)
	}
}

// Summary says what is lost, before the user confirms.
func (r *Restore) Summary() string {
	switch {
	case r.served:
		return fmt.Sprintf("%s by a run that was interrupted. This finishes it, and restores nothing: everything written to the cluster since then stays. "+
			"To restore the snapshot again, run this command once more afterwards.", r.restored())
	case r.made:
		return fmt.Sprintf("etcd's data is restored from %s already. This finishes the run that was interrupted.", r.File)
	}
	text := fmt.Sprintf("This restores etcd from %s, and restarts this control plane.\n", r.what())
	switch now := r.journal.Revision; {
	case now-r.info.Revision >= etcd.RevisionBump:
		text += fmt.Sprintf("etcd is at revision %d now: everything written to the cluster in between is lost; how much is not known, because etcd was restored or recovered meanwhile.", now)
	case now > 0:
		text += fmt.Sprintf("etcd is at revision %d now: everything written to the cluster in between (%s) is lost.", now, count(max(now-r.info.Revision, 0), "revision"))
	default:
		text += "Everything that was written to the cluster since then is lost; how much is not known, because etcd does not answer."
	}
	if len(r.Running) > 0 {
		text += "\nThese members of etcd run, and have to be reset first: " + strings.Join(r.Running, ", ") + r.Doubt()
	}
	if len(r.Foreign) > 0 {
		text += "\nThese members of etcd must never run again; another host may have their address: " + strings.Join(r.Foreign, ", ")
	}
	if len(r.Silent) > 0 {
		text += "\nThese members of etcd do not answer, and must never run again: " + strings.Join(r.Silent, ", ") + r.Doubt()
	}
	if slices.Contains(r.record.Alarms, "NOSPACE") {
		text += "\nThe snapshot was taken while etcd was full (alarm NOSPACE): once etcd runs with it, run `slipway etcd defrag`, and then this command again"
	}
	if damage := r.damage(); damage != "" {
		text += "\n" + damage
	}
	if outdated := r.outdated(); outdated != "" {
		text += "\n" + outdated
	}
	for _, doubt := range slices.Concat(r.doubts, r.unsure) {
		text += "\nNOT CHECKED: " + doubt
	}
	return text
}

// what says which snapshot it is.
func (r *Restore) what() string {
	return fmt.Sprintf("%s (%s, revision %d, %s)", r.File, r.taken(), r.info.Revision, count(r.info.Keys, "key"))
}

func (r *Restore) taken() string {
	if !r.recorded {
		return "of unknown age"
	}
	return fmt.Sprintf("of %s, from %s, Kubernetes %s", ui.Time(r.record.Taken), r.record.Node, cmp.Or(r.record.Kubernetes, "of unknown version"))
}

// Phases is the workflow.
func (r *Restore) Phases() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Show what is restored, and check that nothing is in the way", Run: r.preflight},
		{Name: "etcd-data", Summary: "Put the snapshot's data in place of etcd's, and restart the control plane and the kubelet", Run: r.replaceData},
		{Name: "settle", Summary: "Wait until kubelets and controllers work with the restored state, and name the Nodes that do not fit it", Run: r.settle},
		{Name: "finish", Summary: "Record that the restore is complete, and show the next steps", Run: r.finish},
	}
}

func (r *Restore) preflight(ctx context.Context, env *step.Env) error {
	if err := r.recheck(ctx, env); err != nil {
		return err
	}
	env.UI.Printf("%s", strings.ReplaceAll(r.Summary(), "\n", " "))
	if r.begun {
		return nil // it has to go on
	}
	if err := r.replacement.CheckPrerequisites(ctx, env); err != nil {
		return err
	}
	if err := r.replacement.Clear(env); err != nil {
		return err
	}
	of := preflight.Check{Name: fault.EtcdSnapshotCluster, Description: "the snapshot is of this cluster", Run: func(context.Context, preflight.View) []fault.Finding { return r.another }}
	checks := append(preflight.Rollback(), trial.NewUnfinishedCheck(env), r.spaceQuestion(), of, node.EtcdOthersCheck(r.Findings))
	return node.Check(ctx, env, checks...)
}

// Blocked reports whether the preflight is sure to end the restore, so there's nothing to ask the operator.
func (r *Restore) Blocked() bool { return len(r.Running) > 0 }

// spaceQuestion checks the space for the restored data beside the present.
func (r *Restore) spaceQuestion() preflight.Check {
	return backup.RestoreSpace("`slipway etcd prune` removes old data of etcd, `slipway etcd snapshot prune` old snapshots",
		preflight.Need{Dir: filepath.Dir(r.Data), Bytes: r.need()})
}

// restored says when an earlier run restored etcd.
func (r *Restore) restored() string {
	text := "etcd was restored from " + r.File
	if !r.journal.Since.IsZero() {
		text += " at " + ui.Time(r.journal.Since)
	}
	return text
}

// finish ends the restore: the next one begins from the start.
func (r *Restore) finish(_ context.Context, env *step.Env) error {
	if err := env.Host.Remove(node.EtcdJournalPath(env.Config.Paths)); err != nil {
		return err
	}
	if r.served {
		env.UI.Nextf("%s, and everything written since then is still there; to restore it again, run this command once more", r.restored())
	} else {
		env.UI.Nextf("etcd has the state of %s", r.File)
	}
	if kept, err := host.Exists(env.Host, r.replacement.OldData); err != nil || kept {
		env.UI.Nextf("etcd's data from before is in %s, until `slipway etcd prune` removes it", r.replacement.OldData)
	}
	node.SayRejoin(env, r.journal.Others)
	r.sayUpgrade(env) // the upgrade is refused while lost control planes are registered
	return nil
}
