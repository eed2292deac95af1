// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	stderrors "errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// preparedFiles are the files a preparation may have made, besides programs and mirrors.
func preparedFiles() []string {
	return slices.Concat([]string{
		modulesPath, sysctlPath, containerd.ConfigPath, containerd.ProxyPath, containerd.ProxyEnvPath, containerd.CrictlPath,
		kubeletconfig.DropInPath,
	}, unitPaths(containerd.Unit), unitPaths(node.KubeletUnit))
}

// runResetFiles removes Slipway's files that nobody has edited.
func runResetFiles(ctx context.Context, env *step.Env) error {
	record, err := readPrepared(env.Host)
	if err != nil {
		return err
	}
	owner, err := containerdOwner(ctx, env)
	if err != nil {
		return err
	}
	other, err := otherRuntime(ctx, env)
	if err != nil {
		return err
	}
	r := &fileReset{Env: env, missing: record.Missing, containerd: owner}
	if other != "" {
		r.inUse = append(runtimeDirectories(), cniDir)
	}
	ownKubelet := env.Host.CreatedBySlipway(kubeletconfig.DropInPath)
	reload := owner == bundledRuntime || ownKubelet
	r.removeDirectories(record.Directories, ownKubelet)
	for _, dir := range []string{programDir, cniDir, unitDir, containerd.ConfDir} {
		r.removeIn(dir, "")
	}
	r.removeEarlyUnits()
	r.removeIn(containerd.CertsDir, "hosts.toml")
	for _, path := range preparedFiles() {
		r.removeFile(path)
	}
	for _, dir := range runtimeDirectories() {
		r.addError(r.removeEmpty(dir))
	}
	if reload { // even if something stays: the next run doesn't know any more whose units were here
		r.addError(env.Host.ReloadUnits(ctx))
		r.addError(startPackaged(ctx, env))
	}
	return stderrors.Join(r.failed...)
}

// removeDirectories removes data of the bundle's daemons. Other daemons may have filled the directories, too.
func (r *fileReset) removeDirectories(vacated []string, ownKubelet bool) {
	var runtimes []string
	for _, dir := range vacated {
		switch {
		case dir == namespaceDir:
			r.removeNamespaces()
		case slices.Contains(containerd.Directories(), dir):
			runtimes = append(runtimes, dir)
		case ownKubelet: // logs of Pods
			r.removeData(dir)
		default:
			r.addError(r.removeVacant(dir))
		}
	}
	r.removeContainerd(runtimes)
}

// removeVacant removes a directory if it's empty, and otherwise names it.
func (r *fileReset) removeVacant(dir string) error {
	filled, err := isFilled(r.Host, dir)
	if err != nil {
		return err
	}
	if filled {
		r.UI.Warn(dir+" stays: the kubelet that has filled it is not from a bundle", "remove it if nothing needs it")
		return nil
	}
	_, err = r.Host.RemoveEmpty(dir)
	return err
}

// startPackaged starts a package's kubelet again, which waits for its settings as before.
func startPackaged(ctx context.Context, env *step.Env) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.UnitFileState != "enabled" || state.ActiveState != "inactive" {
		return err
	}
	return env.Host.OrderUnit(ctx, host.StartUnit, node.KubeletUnit)
}

// fileReset removes files, whatever fails.
type fileReset struct {
	*step.Env
	missing    []string // directories that weren't there before
	containerd runtimeOwner
	staying    []string // bundle's files that an operator's containerd may use
	inUse      []string // directories: containerd ends when the Pod network's settings directory is removed
	failed     []error
}

func (r *fileReset) addError(err error) {
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

// removeData removes a directory filled only by a bundle's daemon.
func (r *fileReset) removeData(dir string) {
	mounts, err := r.Host.Mounts(dir)
	r.addError(err)
	for _, m := range mounts {
		if m != dir { // a separate disk stays mounted
			r.addError(r.Host.Unmount(m, nil))
		}
	}
	done, err := r.Host.RemoveTree(dir)
	if done.Changed {
		r.UI.Printf("Removed %s", dir)
	}
	r.addError(err)
}

// namespaceDir has a mount for each named network namespace: Pods', `ip netns add`'s, and Podman's.
const namespaceDir = "/run/netns"

// removeNamespaces removes Pods' network namespaces, which containerd calls cni-…, if it's from a bundle. A bound directory, as
// `ip netns add` makes it, and others' namespaces stay.
func (r *fileReset) removeNamespaces() {
	mounts, err := r.Host.Mounts(namespaceDir)
	r.addError(err)
	entries, err := r.Host.ReadDir(namespaceDir)
	r.addError(host.IgnoreMissing(err))
	for _, e := range entries {
		path := filepath.Join(namespaceDir, e.Name())
		if !strings.HasPrefix(e.Name(), "cni-") || r.containerd != bundledRuntime {
			continue
		}
		r.UI.Printf("Removing %s", path)
		for _, m := range mounts {
			if m == path {
				r.addError(r.Host.Unmount(m, nil))
			}
		}
		r.addError(r.Host.Remove(path))
	}
	_, err = r.Host.RemoveEmpty(namespaceDir)
	r.addError(err)
}

// removeIn removes Slipway's files in a directory, or its files with a name in the directories below.
func (r *fileReset) removeIn(dir, name string) {
	entries, err := r.Host.ReadDir(dir)
	r.addError(host.IgnoreMissing(err))
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), name)
		if _, leftover := host.LeftoverOf(e.Name()); leftover {
			r.addError(r.Host.Remove(path))
		} else if r.Host.CreatedBySlipway(path) {
			r.removeFile(path)
		}
	}
	r.addError(r.removeEmpty(dir))
}

// removeEarlyUnits removes a bundle's units among others. The units slipway-… are a node's.
func (r *fileReset) removeEarlyUnits() {
	entries, err := r.Host.ReadDir(earlyUnitDir)
	r.addError(host.IgnoreMissing(err))
	for _, e := range entries {
		path := filepath.Join(earlyUnitDir, e.Name())
		if _, leftover := host.LeftoverOf(e.Name()); leftover {
			r.addError(r.Host.Remove(path))
		} else if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), "slipway-") {
			r.removeFile(path)
		}
	}
}

// removeFile removes an unedited file of Slipway's, and the directories made for it.
func (r *fileReset) removeFile(path string) {
	switch {
	case slices.Contains(r.staying, path): // named already
	case r.Host.Unchanged(path):
		r.UI.Printf("Removing %s", path)
		r.addError(r.Host.Remove(path))
	case r.Host.CreatedBySlipway(path):
		r.UI.Warn(path+" was edited, and stays", "remove it if nothing needs it")
	}
	r.addError(r.removeEmpty(filepath.Dir(path)))
}

// removeEmpty removes an empty directory that wasn't there before, or that Slipway made, and its parents likewise.
func (r *fileReset) removeEmpty(dir string) error {
	for ; slices.Contains(r.missing, dir) || r.Host.CreatedBySlipway(dir); dir = filepath.Dir(dir) {
		if slices.Contains(r.inUse, dir) {
			return nil
		}
		if removed, err := r.Host.RemoveEmpty(dir); err != nil || !removed {
			return err
		}
	}
	return nil
}
