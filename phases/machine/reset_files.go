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

// preparedFiles are the files that a preparation may have made, beside programs and mirrors.
func preparedFiles() []string {
	return []string{
		modulesPath, sysctlPath, containerd.ConfigPath, containerd.UnitPath, containerd.ProxyPath, containerd.ProxyEnvPath,
		containerd.CrictlPath, kubeletconfig.UnitPath, kubeletconfig.DropInPath,
	}
}

// runResetFiles removes what Slipway has made and nobody has edited since.
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
	ownKubelet := env.Host.Made(kubeletconfig.DropInPath)
	reload := owner == slipways || ownKubelet
	r.removeDirectories(record.Directories, ownKubelet)
	for _, dir := range []string{programDir, cniDir, unitDir, containerd.ConfDir} {
		r.removeIn(dir, "")
	}
	r.removeIn(containerd.CertsDir, "hosts.toml")
	for _, path := range preparedFiles() {
		r.removeFile(path)
	}
	for _, dir := range runtimeDirectories() {
		r.did(r.removeEmpty(dir))
	}
	if err := stderrors.Join(r.failed...); err != nil || !reload {
		return err
	}
	if err := env.Host.ReloadUnits(ctx); err != nil {
		return err
	}
	return startPackaged(ctx, env)
}

// removeDirectories removes what daemons from a bundle have filled. Others than these may have filled them, too.
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
			r.did(r.removeVacant(dir))
		}
	}
	r.removeContainerd(runtimes)
}

// removeVacant removes a directory if it is empty, and else names it.
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

// startPackaged starts the kubelet of a package again, which waits for its settings as it did before.
func startPackaged(ctx context.Context, env *step.Env) error {
	state, err := unitState(ctx, env, node.KubeletUnit)
	if err != nil || state.UnitFileState != "enabled" || state.ActiveState != "inactive" {
		return err
	}
	return env.Host.StartUnit(ctx, node.KubeletUnit)
}

// fileReset removes files, whatever fails.
type fileReset struct {
	*step.Env
	missing    []string // directories that were not there before
	containerd runtimeOwner
	staying    []string // of the bundle's files: an operator's containerd may use them
	inUse      []string // directories: containerd ends when that of the Pod network's settings is removed
	failed     []error
}

func (r *fileReset) did(err error) {
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

// removeData removes a directory that only a daemon from a bundle has filled.
func (r *fileReset) removeData(dir string) {
	mounts, err := r.Host.Mounts(dir)
	r.did(err)
	for _, m := range mounts {
		if m != dir { // a disk of its own stays mounted
			r.did(r.Host.Unmount(m, nil))
		}
	}
	done, err := r.Host.RemoveTree(dir)
	if done.Changed {
		r.UI.Printf("Removed %s", dir)
	}
	r.did(err)
}

// namespaceDir has a mount for each network namespace that has a name: those of Pods, of `ip netns add`, and of Podman.
const namespaceDir = "/run/netns"

// removeNamespaces removes the network namespaces of Pods, which containerd calls cni-…, if it is from a bundle. A bound
// directory, as `ip netns add` makes it, and namespaces that others have made stay.
func (r *fileReset) removeNamespaces() {
	mounts, err := r.Host.Mounts(namespaceDir)
	r.did(err)
	entries, err := r.Host.ReadDir(namespaceDir)
	r.did(node.IgnoreMissing(err))
	for _, e := range entries {
		path := filepath.Join(namespaceDir, e.Name())
		if !strings.HasPrefix(e.Name(), "cni-") || r.containerd != slipways {
			continue
		}
		r.UI.Printf("Removing %s", path)
		for _, m := range mounts {
			if m == path {
				r.did(r.Host.Unmount(m, nil))
			}
		}
		r.did(r.Host.Remove(path))
	}
	_, err = r.Host.RemoveEmpty(namespaceDir)
	r.did(err)
}

// removeIn removes the files in a directory that Slipway has made, or those with a name in the directories below it.
func (r *fileReset) removeIn(dir, name string) {
	entries, err := r.Host.ReadDir(dir)
	r.did(node.IgnoreMissing(err))
	for _, e := range entries {
		path := filepath.Join(dir, e.Name(), name)
		if _, leftover := host.LeftoverOf(e.Name()); leftover {
			r.did(r.Host.Remove(path))
		} else if r.Host.Made(path) {
			r.removeFile(path)
		}
	}
	r.did(r.removeEmpty(dir))
}

// removeFile removes a file that is as Slipway has made it, and the directories that it made for it.
func (r *fileReset) removeFile(path string) {
	switch {
	case slices.Contains(r.staying, path): // named already
	case r.Host.Unchanged(path):
		r.UI.Printf("Removing %s", path)
		r.did(r.Host.Remove(path))
	case r.Host.Made(path):
		r.UI.Warn(path+" was edited, and stays", "remove it if nothing needs it")
	}
	r.did(r.removeEmpty(filepath.Dir(path)))
}

// removeEmpty removes a directory that was not there before, or that Slipway has made, if it is empty, and those above it.
func (r *fileReset) removeEmpty(dir string) error {
	for ; slices.Contains(r.missing, dir) || r.Host.Made(dir); dir = filepath.Dir(dir) {
		if slices.Contains(r.inUse, dir) {
			return nil
		}
		if removed, err := r.Host.RemoveEmpty(dir); err != nil || !removed {
			return err
		}
	}
	return nil
}
