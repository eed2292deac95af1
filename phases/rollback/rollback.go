// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollback has the workflow of `upgrade rollback` (New, then Rollback.Phases). New finds this node's backup and checks
// that it fits; the phases put the files back and, with --restore-etcd, etcd's data. It works without the API.
// docs/design/rollback.md has the reasons.
package rollback

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// Options say what a rollback puts back.
type Options struct {
	Backup *upgrading.Backup
	// Progress says how far an earlier run got.
	Progress upgrading.Progress
	// RestoreEtcd also puts back etcd's data, from the backup's snapshot.
	RestoreEtcd bool
}

// Rollback returns a node to its state before its last upgrade.
type Rollback struct {
	Options
	// seen is the Progress that New was given.
	seen upgrading.Progress
	// before has the manifests to put back, by component.
	before map[string][]byte
	// restore is nil if etcd's data stays.
	restore *restore
	// edited are replaced files that somebody has edited, or may have, since the upgrade.
	edited []string
	// newer are the kubelet's files as they were before this run put their previous versions back.
	newer []ownership.File
}

// New reads the backup, and fails unless it fits this node. It writes nothing.
func New(ctx context.Context, env *step.Env, o Options) (*Rollback, error) {
	r := &Rollback{Options: o, seen: o.Progress, before: map[string][]byte{}}
	if !o.Progress.IsOf(o.Backup) {
		r.Progress = upgrading.Progress{}
	}
	if o.Backup.Node != "" && o.Backup.Node != env.Config.Name {
		return nil, fault.New(fmt.Sprintf("the backup in %s is of node %s, and this node is %s", node.BackupRoot(env), o.Backup.Node, env.Config.Name),
			"if this host had that name before, put back the files that you need by hand; then move the backup away")
	}
	if err := r.checkSameCluster(env); err != nil {
		return nil, err
	}
	r.reportEarlier(env)
	if err := r.readManifests(env); err != nil {
		return nil, err
	}
	if err := r.checkVersion(env); err != nil {
		return nil, err
	}
	if err := r.prepareRestore(ctx, env); err != nil {
		return nil, err
	}
	if err := r.checkEtcd(env); err != nil {
		return nil, err
	}
	return r, r.findEdited(ctx, env)
}

// checkEtcd fails if etcd's data stays, and its version is unknown.
func (r *Rollback) checkEtcd(env *step.Env) error {
	if r.restore != nil || r.before[manifests.EtcdName] == nil {
		return nil
	}
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	now, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return err
	}
	why := "does not exist"
	if now != nil {
		if _, err = manifests.DecodePod(now); err == nil {
			return nil
		}
		why = fmt.Sprintf("is not a static Pod (%v)", err)
	}
	return fault.New(path+" "+why+", so it is not known which version of etcd wrote the data on this host; an older one may not start with it",
		"put the file back as it was, or use --restore-etcd")
}

// readManifests reads the backup's static Pods. A worker that was a control plane once doesn't get them back.
func (r *Rollback) readManifests(env *step.Env) error {
	if !env.Config.ControlPlane {
		return nil
	}
	for component, path := range r.Backup.Manifests {
		data, err := env.Host.ReadFile(path)
		if err != nil {
			return err
		}
		r.before[component] = data
	}
	return nil
}

// checkVersion fails if this control plane runs neither version of the backup's upgrade.
func (r *Rollback) checkVersion(env *step.Env) error {
	before := r.before[manifests.APIServerName]
	now, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	if err != nil || now == nil || before == nil {
		return err // a rollback also puts back a missing manifest
	}
	runs, err := upgrading.VersionOf(now)
	if err == nil && r.Backup.To == "" {
		return r.checkSkew(env, runs)
	}
	if err != nil || manifests.ImageOf(now) == manifests.ImageOf(before) || runs == r.Backup.To || runs != "" && runs == r.Backup.From {
		return nil //nolint:nilerr // the manifest is damaged: another reason to put back the earlier manifest
	}
	return fault.New(fmt.Sprintf("this control plane runs %s, but the last backup is from its upgrade from %s to %s",
		manifests.ImageOf(now), cmp.Or(r.Backup.From, manifests.ImageOf(before)), r.Backup.To),
		"to change the version, use `slipway upgrade apply`; the files of the backup are in "+node.BackupRoot(env))
}

// checkSkew fails if a backup without a record of its upgrade, such as kubeadm's, can't be of the last upgrade: its
// version is neither of the present minor nor of the minor before.
func (r *Rollback) checkSkew(env *step.Env, runs string) error {
	now, err := version.ParseSemantic(runs)
	before, beforeErr := version.ParseSemantic(r.Backup.From)
	if err != nil || beforeErr != nil {
		return nil //nolint:nilerr // versions that cannot be compared
	}
	if oldest := now.OffsetMinor(-1); before.Major() == now.Major() && before.Minor() >= oldest.Minor() && before.Minor() <= now.Minor() {
		return nil
	}
	return fault.New(fmt.Sprintf("this control plane runs %s, but the last backup has the static Pods of %s", runs, r.Backup.From),
		"an upgrade goes from one minor version to the next, so this backup is older than the last one; its files are in "+node.BackupRoot(env))
}

// Summary says what is put back and what is lost, before the user confirms.
func (r *Rollback) Summary() string {
	if r.restore == nil || r.Progress.Restored {
		return r.what()
	}
	return r.what() + "\n" + r.restore.lossSummary()
}

func (r *Rollback) what() string {
	upgrade := "the upgrade of " + ui.Time(r.Backup.Began)
	switch {
	case len(r.before) == 0: // such as on a worker
		return "This puts back the kubelet's settings from before " + upgrade + "."
	case r.restore == nil:
		return fmt.Sprintf("This puts back the static Pods (Kubernetes %s) and the kubelet's settings from before %s. The cluster's data stays as it is.", r.from(), upgrade)
	}
	return fmt.Sprintf("This puts back the static Pods (Kubernetes %s), the kubelet's settings and etcd's data from before %s.", r.from(), upgrade)
}

// from is the version of the static Pods to put back, for messages.
func (r *Rollback) from() string {
	return cmp.Or(r.Backup.From, "of unknown version "+manifests.ImageOf(r.before[manifests.APIServerName]))
}

// Phases returns the workflow.
func (r *Rollback) Phases() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Show what will be put back, and pull the images for it", Run: r.preflight},
		{Name: "kubelet-config", Summary: "Put back the kubelet's settings", Run: r.putBackKubelet},
		{Name: "control-plane", Summary: "Put back the static Pods, and etcd's data with --restore-etcd", Run: r.putBackControlPlane, Skip: node.UnlessControlPlane},
		{Name: "kubelet-start", Summary: "Restart the kubelet of a worker if its settings were put back", Run: r.startKubelet, Skip: unlessWorker},
		{Name: "upload-config", Summary: "Store the previous version, once no control plane runs a newer one", Run: r.storeConfiguration, Skip: node.UnlessControlPlane},
		{Name: "addon", Summary: "Put back kube-proxy, once no control plane runs a newer version", Run: r.putBackKubeProxy, Skip: r.unlessKubeProxy},
		{Name: "post-rollback", Summary: "Record that the rollback is complete, and show the next steps", Run: r.finish},
	}
}

func unlessWorker(env *step.Env) string {
	if env.Config.ControlPlane {
		return "the kubelet restarts with the static Pods"
	}
	return ""
}

func (r *Rollback) preflight(ctx context.Context, env *step.Env) error {
	if err := r.recheck(ctx, env); err != nil {
		return err
	}
	env.UI.Printf("%s", r.what())
	if r.restore != nil && !r.Progress.Restored {
		env.UI.Warnf("%s", strings.ReplaceAll(r.restore.lossSummary(), "\n", " "))
	}
	if r.restore != nil && !r.restore.begun {
		if err := r.restore.replacement.CheckPrerequisites(ctx, env); err != nil {
			return err
		}
		if err := r.restore.replacement.Clear(env); err != nil {
			return err
		}
	}
	checks := append(preflight.Rollback(), trial.NewUnfinishedCheck(env), r.kubeletQuestion(env))
	if r.restore != nil {
		checks = append(checks, node.EtcdOthersCheck(r.restore.findings), r.restore.spaceQuestion(env, backup.MissingImagesNeed(ctx, env, r.images(env))...))
	}
	if env.Config.ControlPlane {
		checks = append(checks, r.quorumCheck(env), preflight.Images(env.Config, r.images(env), env.Host, node.ReportImage(env)),
			r.protectionQuestion(env), r.quotaQuestion(env))
	}
	return node.Check(ctx, env, checks...)
}

func (r *Rollback) images(env *step.Env) []string {
	var list []string
	for _, component := range manifests.Components(env.Config) {
		if image := manifests.ImageOf(r.before[component]); image != "" && !r.keepsEtcd(env, component) {
			list = append(list, image)
		}
	}
	return list
}
