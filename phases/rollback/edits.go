// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

// editedCopies begins the names of directories with edited files that a rollback has replaced.
const editedCopies = "slipway-before-rollback-"

// findEdited notes the files that the rollback replaces and that somebody has edited, or may have, since the upgrade, or that another
// command has written. It names them, unless it has named the same files before.
func (r *Rollback) findEdited(ctx context.Context, env *step.Env) error {
	replaced, err := r.replaced(ctx, env)
	if err != nil {
		return err
	}
	var edited, later, perhaps []string
	for _, path := range replaced {
		of, err := backup.DetectEdit(env, path)
		if err != nil {
			return err
		}
		wroteLater, err := r.wroteLater(env, path)
		switch {
		case err != nil:
			return err
		case of == backup.Edited:
			edited = append(edited, path)
		case wroteLater:
			later = append(later, path)
		case of == backup.EditUnknown:
			perhaps = append(perhaps, path)
		}
	}
	if slices.Equal(slices.Concat(edited, later, perhaps), r.edited) {
		return nil
	}
	remedy := "the rollback keeps copies in " + filepath.Join(node.BackupRoot(env), editedCopies+"…") + "; to keep a change, make it in the file of the backup, which goes back"
	if len(edited) > 0 {
		env.UI.Warn("edited since the upgrade, and to be replaced: "+strings.Join(edited, ", "), remedy)
	}
	if len(later) > 0 {
		env.UI.Warn("changed since the upgrade by another command, such as `slipway reconfigure`, and to be replaced: "+strings.Join(later, ", "), remedy)
	}
	if len(perhaps) > 0 {
		env.UI.Warn("to be replaced, and nothing says whether they were edited since the upgrade: "+strings.Join(perhaps, ", "), remedy)
	}
	r.edited = slices.Concat(edited, later, perhaps)
	return nil
}

// wroteLater reports whether Slipway has written a replaced file since the upgrade: its content is neither the backup's nor the
// upgrade's. Backups don't record files that the upgrade left alone, nor do earlier releases' record any.
func (r *Rollback) wroteLater(env *step.Env, path string) (bool, error) {
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil || !env.Host.Unchanged(path) {
		return false, err
	}
	if same, recorded := r.Backup.Wrote(filepath.Base(path), data); recorded {
		return !same, nil
	}
	return trial.Wrote(env, path, data)
}

// replaced lists the files that the rollback replaces: the kubelet's, and static Pods.
func (r *Rollback) replaced(ctx context.Context, env *step.Env) (paths []string, err error) {
	files, _, err := r.acceptedFiles(ctx, env)
	if err == nil {
		files, err = ownership.Differing(env.Host, files)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	for _, component := range manifests.Components(env.Config) {
		path := env.Config.Paths.StaticPod(component)
		now, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return nil, err
		}
		if r.before[component] != nil && now != nil && !r.keepsEtcd(env, component) && !manifests.SameStaticPod(now, r.before[component]) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func (r *Rollback) keepEdited(env *step.Env) error {
	dir := filepath.Join(node.BackupRoot(env), editedCopies+env.Host.Now().UTC().Format(host.BackupTime))
	for _, path := range r.edited {
		env.UI.Printf("Keeping a copy of %s in %s", path, dir)
		if err := backup.File(env, dir, path); err != nil {
			return err
		}
	}
	return nil
}

// quotaQuestion finds a quota of etcd in the backup that its database has outgrown. A restore also puts back a smaller database.
func (r *Rollback) quotaQuestion(env *step.Env) preflight.Check {
	return preflight.Check{Name: fault.EtcdQuota, Description: "etcd's databases have room below its previous quota", Run: func(ctx context.Context, _ preflight.View) []fault.Finding {
		if r.restore != nil || r.before[manifests.EtcdName] == nil || r.keepsEtcd(env, manifests.EtcdName) {
			return nil
		}
		data, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
		if err != nil {
			return []fault.Finding{fault.Of(err)}
		}
		now, err := manifests.DecodePod(data)
		if err != nil {
			now = nil // a reason to go back
		}
		before, err := manifests.DecodePod(r.before[manifests.EtcdName])
		if err != nil {
			return []fault.Finding{fault.Of(err)}
		}
		return node.CheckEtcdQuota(ctx, env, now, before, " in "+r.Backup.Manifests[manifests.EtcdName])
	}}
}

// protectionQuestion finds flags protecting data or access that came after the backup, so the rollback would drop them: data
// encrypted since can't be read without them. It can be ignored, because such a flag may be why the new version doesn't run.
func (r *Rollback) protectionQuestion(env *step.Env) preflight.Check {
	return preflight.Check{Name: fault.StaticPodProtection, Description: "the rollback keeps the protection of data and access", Run: func(context.Context, preflight.View) []fault.Finding {
		var found []fault.Finding
		for _, component := range slices.Sorted(maps.Keys(r.before)) {
			lost, err := r.lostFlags(env, component)
			switch {
			case err != nil:
				found = append(found, fault.Of(err))
			case len(lost) > 0:
				found = append(found, fault.NewFinding(fault.StaticPodProtection, fault.Error,
					"add it to "+r.Backup.Manifests[component]+", which the rollback puts back; to go back without it, use "+fault.Ignoring(fault.StaticPodProtection),
					"the rollback would drop protection of data or access from the static Pod of %s: %s", component, strings.Join(lost, ", ")))
			}
		}
		return found
	}}
}

// lostFlags are in a component's static Pod, but not in the backup's. An unreadable Pod has none: it's why the user goes back.
func (r *Rollback) lostFlags(env *step.Env, component string) (lost []string, err error) {
	now, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(component))
	if err != nil || now == nil || r.keepsEtcd(env, component) {
		return nil, err
	}
	there, err := manifests.DecodePod(now)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	before, err := manifests.DecodePod(r.before[component])
	if err != nil {
		return nil, err
	}
	for _, f := range manifests.PodFlags(there) {
		if f.Begins(slices.Values(manifests.ProtectiveFlags)) != "" && !node.FlagPreserved(env, f, there, before) {
			lost = append(lost, strings.Join(f.Words, " "))
		}
	}
	return lost, nil
}
