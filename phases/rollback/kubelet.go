// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// kubeletCheck finds settings of the backup that the installed kubelet, which may be newer, wouldn't start with.
const kubeletCheck = "KubeletConfiguration"

func (r *Rollback) kubeletQuestion(env *step.Env) preflight.Check {
	return preflight.Check{Name: kubeletCheck, Description: "the installed kubelet starts with its previous configuration", Run: func(ctx context.Context, _ preflight.View) []fault.Finding {
		path := env.Config.Paths.KubeletConfig()
		files, err := r.kubeletFiles(env)
		if err == nil {
			files, err = ownership.Differing(env.Host, files)
		}
		if err != nil {
			return []fault.Finding{fault.Of(err)}
		}
		i := slices.IndexFunc(files, func(f ownership.File) bool { return f.Path == path })
		if i < 0 {
			return nil
		}
		kubelet, err := preflight.InstalledKubelet(ctx, env.Host)
		if err != nil {
			return []fault.Finding{fault.NewFinding(kubeletCheck, fault.Unasked, fault.Remedy(err),
				"whether the installed kubelet starts with %s: %v", r.Backup.Kubelet[filepath.Base(path)], err)}
		}
		_, err = env.Host.Lstat("/sys/fs/cgroup/cgroup.controllers")
		in := breakages.Inputs{From: kubelet.String(), To: kubelet.String(), Kubelets: []breakages.Kubelet{{
			Where: r.Backup.Kubelet[filepath.Base(path)], From: kubelet.OffsetMinor(-1).String(),
			Config: files[i].Data, CgroupV1: errors.Is(err, fs.ErrNotExist),
		}}}
		found := breakages.Check(in)
		for i := range found {
			if found[i].Name = kubeletCheck; found[i].Severity == fault.Error {
				found[i].Remedy = "install the previous kubelet first, or correct that file (" + found[i].Remedy + "); if a drop-in corrects it, use --ignore-preflight-errors=" + kubeletCheck
			}
		}
		return found
	}}
}

func (r *Rollback) kubeletFiles(env *step.Env) ([]ownership.File, error) {
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

// putBackKubelet leaves the kubelet's restart to a later phase. It reopens the upgrade: if that runs again before the rollback
// has finished, a later rollback goes back to before both runs.
func (r *Rollback) putBackKubelet(ctx context.Context, env *step.Env) error {
	if err := r.keepEdited(env); err != nil {
		return err
	}
	if err := r.Backup.Reopen(env.Host); err != nil {
		return err
	}
	files, removed, err := r.acceptedFiles(ctx, env)
	if err != nil {
		return err
	}
	if len(removed) > 0 {
		env.UI.Printf("Leaving out of %s the flags that the installed kubelet does not accept: %s", filepath.Base(env.Config.Paths.KubeletFlags()), strings.Join(removed, " "))
	}
	if files, err = ownership.Differing(env.Host, files); err != nil {
		return err
	}
	for _, f := range files {
		if f.Data, err = env.Host.ReadFile(f.Path); err == nil {
			r.newer = append(r.newer, f)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return env.Keeper().Replace(files)
}

// acceptedFiles returns the kubelet's files to put back, and the flags it has left out, because the installed kubelet wouldn't
// start with them. The upgrade removed these flags, so only an older kubelet gets them back.
func (r *Rollback) acceptedFiles(ctx context.Context, env *step.Env) (files []ownership.File, removed []string, err error) {
	if files, err = r.kubeletFiles(env); err != nil {
		return nil, nil, err
	}
	for i, f := range files {
		if f.Path != env.Config.Paths.KubeletFlags() {
			continue
		}
		kubelet, err := preflight.InstalledKubelet(ctx, env.Host)
		if err != nil {
			kubelet = nil // every kubelet starts without these flags
		}
		files[i].Data, removed = kubeletconfig.WithoutRefused(f.Data, kubelet)
	}
	return files, removed, nil
}

// startKubelet starts a kubelet stopped by an interrupted restore, or restarts it if it's older than its restored settings.
func (r *Rollback) startKubelet(ctx context.Context, env *step.Env) error {
	unit, err := env.Host.Unit(ctx, node.KubeletUnit)
	if err == nil && unit.ActiveState != "active" {
		env.UI.Printf("Starting the kubelet")
		return node.RestartKubeletAndWait(ctx, env)
	}
	files, err := r.kubeletFiles(env)
	if err != nil {
		return err
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	if err := node.RestartStaleKubelet(ctx, env, paths...); err != nil {
		return err
	}
	return node.WaitKubelet(ctx, env)
}
