// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// containerdOwner says whose containerd this host has when a preparation is undone. It's a bundle's as long as it has the
// bundle's unit, nobody has replaced its program, and nothing but Kubernetes has used it: Docker, installed later, keeps its images
// in a containerd that it finds. Anything else stays, with its data.
func containerdOwner(ctx context.Context, env *step.Env) (runtimeOwner, error) {
	program := filepath.Join(programDir, "containerd")
	_, err := env.Host.Lstat(program)
	if host.IgnoreMissing(err) != nil {
		return noRuntime, err
	}
	replaced := err == nil && !env.Host.Unchanged(program)
	shared, err := isShared(env.Host)
	if err != nil {
		return noRuntime, err
	}
	if broughtUnit(env.Host, containerd.Unit) && !replaced && !shared {
		return bundledRuntime, nil
	}
	state, err := unitState(ctx, env, containerd.Unit)
	if err != nil || state.LoadState != "loaded" {
		return noRuntime, err
	}
	if _, err := env.Host.Lstat(state.Fragment); err != nil { // systemd doesn't know yet that it was removed
		return noRuntime, host.IgnoreMissing(err)
	}
	return foreignRuntime, nil
}

// isShared reports whether containers of another namespace than Kubernetes' have been in containerd.
func isShared(h host.Reader) (bool, error) {
	namespaces, err := h.ReadDir(filepath.Join(containerd.DataDir, preflight.TasksName))
	return slices.ContainsFunc(namespaces, func(e fs.DirEntry) bool { return e.Name() != "k8s.io" }), host.IgnoreMissing(err)
}

func ownContainerd(ctx context.Context, env *step.Env) (bool, error) {
	owner, err := containerdOwner(ctx, env)
	return owner == bundledRuntime, err
}

func runPreflightHostReset(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Checking this host")
	sign := func(h host.Reader) (string, error) { return thisnode.NodeEvidence(h, env.Machine.Paths) }
	return node.Check(ctx, env, preflight.HostReset(sign)...)
}

// runResetImages leaves an image if somebody has given its name to another.
func runResetImages(ctx context.Context, env *step.Env) error {
	record, err := readPrepared(env.Host)
	if err != nil || len(record.Images) == 0 {
		return err
	}
	own, err := ownContainerd(ctx, env)
	if err != nil || own && isOwnSocket(record.criSocket()) { // then they go with its data
		return err
	}
	there, err := host.Exists(env.Host, strings.TrimPrefix(record.criSocket(), "unix://"))
	if err != nil {
		return err
	}
	if !there {
		env.UI.Warn(fmt.Sprintf("%s does not exist, so it is unknown whether its runtime still has images of the bundle", record.criSocket()),
			"if it is only stopped, start it and remove them, unless they are still needed: "+strings.Join(record.Images, ", "))
		return nil
	}
	images, err := env.Host.Images(ctx, record.criSocket())
	if err != nil {
		return err
	}
	for _, i := range images {
		for _, name := range i.Names {
			if !slices.Contains(record.Images, name) {
				continue
			}
			if err := forgetImage(ctx, env, record, name, i.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func forgetImage(ctx context.Context, env *step.Env, record prepared, name, id string) error {
	switch {
	case record.imported(name, id):
		env.UI.Printf("Removing image %s", name)
		return env.Host.RemoveImage(ctx, record.criSocket(), name)
	case slices.Contains(record.Imported, name):
		env.UI.Warn(fmt.Sprintf("the image %s stays: it is %s now, which is not the bundle's", name, id), "remove it if nothing needs it")
		return nil
	}
	return env.Host.PinImage(ctx, record.criSocket(), name, false)
}

// removeContainerd removes the data of a bundle's containerd. Any other stays and is named, with the bundle's files it may use.
func (r *fileReset) removeContainerd(directories []string) {
	if r.containerd == bundledRuntime {
		for _, dir := range directories {
			if dir == stateDir && r.containersRun() {
				r.UI.Warn(dir+" stays: running containers of another runtime may have their shims' sockets there", "the next boot removes it")
				continue
			}
			r.removeData(dir)
			if dir == containerd.DataDir {
				r.removeData(host.FetchNotes)
			}
		}
		return
	}
	var stay []string
	for _, dir := range directories {
		filled, err := isFilled(r.Host, dir)
		r.addError(err)
		if filled {
			stay = append(stay, dir)
		}
	}
	if r.containerd == foreignRuntime {
		r.staying = r.containerdFiles()
		stay = append(stay, r.staying...)
	}
	if len(stay) > 0 {
		r.UI.Warn("these stay, because another container runtime, or another user of this containerd, may need them: "+strings.Join(stay, ", "),
			"remove them if nothing needs them")
	}
}

// stateDir has containerd's state. Until containerd 2.2, it also has the sockets of all shims, whatever their containerd's state
// directory: https://github.com/containerd/containerd/blob/v2.1.0/pkg/shim/util_unix.go
const stateDir = "/run/containerd"

// containersRun reports whether containers run, as far as anybody can tell.
func (r *fileReset) containersRun() bool {
	running, err := preflight.RunningContainers(r.Host)
	return err != nil || len(running) > 0
}

func (r *fileReset) containerdFiles() []string {
	var list []string
	for program := range runtimePrograms {
		list = append(list, filepath.Join(programDir, program))
	}
	list = append(list, containerd.ConfigPath, containerd.ProxyPath, containerd.ProxyEnvPath)
	list = append(list, unitPaths(containerd.Unit)...)
	for _, dir := range []string{containerd.ConfDir, containerd.CertsDir} {
		entries, err := r.Host.ReadDir(dir)
		r.addError(host.IgnoreMissing(err))
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if dir == containerd.CertsDir {
				path = filepath.Join(path, "hosts.toml")
			}
			list = append(list, path)
		}
	}
	list = slices.DeleteFunc(list, func(path string) bool { return !r.Host.CreatedBySlipway(path) })
	slices.Sort(list)
	return list
}
