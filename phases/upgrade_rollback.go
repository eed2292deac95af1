// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// RollbackOptions say what to go back to.
type RollbackOptions struct {
	Backup *upgrading.Backup
	// Progress is that of an earlier run.
	Progress upgrading.Progress
	// RestoreEtcd also puts back etcd's data, from the snapshot in the backup.
	RestoreEtcd bool
}

// Rollback puts a node back to what it was before its last upgrade.
type Rollback struct {
	RollbackOptions
	// before are the manifests to put back, by component.
	before map[string][]byte
	// restore is how to restore etcd; nil if its data stays.
	restore *restore
}

// NewRollback reads the backup, and fails unless it fits this node. It changes nothing.
func NewRollback(ctx context.Context, env *Env, o RollbackOptions) (*Rollback, error) {
	if !o.Progress.Concerns(o.Backup) {
		o.Progress = upgrading.Progress{Began: o.Backup.Began}
	}
	r := &Rollback{RollbackOptions: o, before: map[string][]byte{}}
	if o.Backup.Node != "" && o.Backup.Node != env.Config.Name {
		return nil, errors.Errorf("the backup in %s is of node %s, and this is %s", backupRoot(env), o.Backup.Node, env.Config.Name)
	}
	for component, path := range o.Backup.Manifests {
		data, err := env.Host.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r.before[component] = data
	}
	if err := r.checkVersion(env); err != nil {
		return nil, err
	}
	return r, r.prepareRestore(ctx, env)
}

// checkVersion fails if the backup is not of the upgrade that made this control plane what it is.
func (r *Rollback) checkVersion(env *Env) error {
	now, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, manifests.APIServerName))
	if err != nil || now == nil || r.Backup.From == "" || r.Backup.To == "" {
		return err // a rollback also puts back a manifest that is missing
	}
	runs, err := upgrading.VersionOf(now)
	if err != nil || runs == r.Backup.From || runs == r.Backup.To {
		return nil //nolint:nilerr // the manifest is damaged: one more reason to put back the earlier one
	}
	return fault.New(fmt.Sprintf("this control plane runs %s, but the last backup is of its upgrade from %s to %s", runs, r.Backup.From, r.Backup.To),
		"to change the version, use `slipway upgrade apply`; the files of the backup are in "+backupRoot(env))
}

// Summary says what is put back and what is lost, for the question whether to go on.
func (r *Rollback) Summary(env *Env) string {
	if r.restore == nil || r.Progress.Restored {
		return r.what(env)
	}
	return r.what(env) + "\n" + r.restore.loses()
}

func (r *Rollback) what(env *Env) string {
	upgrade := fmt.Sprintf("the upgrade of %s", r.Backup.Began.Format(shownTime))
	switch {
	case !env.Config.ControlPlane:
		return "This puts back the kubelet's settings of before " + upgrade + "."
	case r.restore == nil:
		return fmt.Sprintf("This puts back the static Pods (Kubernetes %s) and the kubelet's settings of before %s. The cluster's data stays as it is.", r.Backup.From, upgrade)
	}
	return fmt.Sprintf("This puts back the static Pods (Kubernetes %s), the kubelet's settings and etcd's data of before %s.", r.Backup.From, upgrade)
}

// shownTime is how messages show times (UTC).
const shownTime = "2006-01-02 15:04:05 UTC"

// Phases are the workflow.
func (r *Rollback) Phases() []Phase {
	return []Phase{
		{Name: "preflight", Summary: "Say what is put back, and pull its images", Run: r.preflight},
		{Name: "kubelet-config", Summary: "Put back the kubelet's settings", Run: r.putBackKubelet},
		{Name: "control-plane", Summary: "Put back the static Pods, and etcd's data if asked to", Run: r.putBackControlPlane, Skip: unlessControlPlane},
		{Name: "kubelet-start", Summary: "Restart the kubelet of a worker, if it has not read its settings", Run: r.startKubelet, Skip: unlessWorker},
		{Name: "upload-config", Summary: "Store the version of before, once no control plane has a newer one", Run: r.storeConfiguration, Skip: unlessControlPlane},
		{Name: "addon", Summary: "Put back kube-proxy, once no control plane has a newer version", Run: r.putBackKubeProxy, Skip: r.unlessKubeProxy},
		{Name: "post-rollback", Summary: "Note that the rollback is complete, and say what is next", Run: r.finish},
	}
}

func unlessWorker(env *Env) string {
	if env.Config.ControlPlane {
		return "putting back the static Pods restarts the kubelet"
	}
	return ""
}

func (r *Rollback) preflight(ctx context.Context, env *Env) error {
	env.UI.Printf("%s", r.what(env))
	if r.restore != nil && !r.Progress.Restored {
		env.UI.Warnf("%s", strings.ReplaceAll(r.restore.loses(), "\n", " "))
	}
	checks := preflight.Rollback()
	if env.Config.ControlPlane {
		checks = append(checks, preflight.Images(env.Config, r.images(env), env.Host, sayImage(env)))
	}
	return show(env, preflight.Run(ctx, checks, env.Host, env.Config.IgnorePreflightErrors))
}

// images are those of the static Pods that are put back.
func (r *Rollback) images(env *Env) []string {
	var list []string
	for _, component := range manifests.Components(env.Config) {
		if image := imageOf(r.before[component]); image != "" && !r.keepsEtcd(env, component) {
			list = append(list, image)
		}
	}
	return list
}

// kubeletFiles are the kubelet's files of before.
func (r *Rollback) kubeletFiles(env *Env) ([]ownership.File, error) {
	var files []ownership.File
	for _, name := range slices.Sorted(maps.Keys(r.Backup.Kubelet)) {
		data, err := env.Host.ReadFile(r.Backup.Kubelet[name])
		if err != nil {
			return nil, err
		}
		files = append(files, ownership.File{Path: filepath.Join(env.Config.Paths.Kubelet, name), Data: data, Mode: 0o600})
	}
	return files, nil
}

// putBackKubelet does not restart the kubelet: putting back the static Pods does.
func (r *Rollback) putBackKubelet(_ context.Context, env *Env) error {
	files, err := r.kubeletFiles(env)
	if err == nil {
		files, err = ownership.Differing(env.Host, files)
	}
	if err != nil {
		return err
	}
	return env.keeper().Replace(files)
}

// startKubelet starts a kubelet that an interrupted restore has stopped, and restarts one that started before its settings
// were put back.
func (r *Rollback) startKubelet(ctx context.Context, env *Env) error {
	unit, err := env.Host.Unit(ctx, kubeletUnit)
	if err == nil && unit.ActiveState != "active" {
		env.UI.Printf("Starting the kubelet")
		return restartKubelet(ctx, env)
	}
	files, err := r.kubeletFiles(env)
	if err != nil {
		return err
	}
	for _, f := range files {
		if stale, err := kubeletIsStale(ctx, env, f.Path); err != nil || stale {
			return restartStaleKubelet(ctx, env, f.Path)
		}
	}
	return nil
}
