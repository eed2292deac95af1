// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdDataReplacement replaces the data of this host's etcd. The caller goes through these steps:
//
//  1. Build makes the new data beside the old, while everything still runs.
//  2. The caller writes a journal with OldData, and with etcd's manifest, because the next step removes it.
//  3. Stop removes etcd's static Pod, so that neither the kubelet nor a boot starts etcd, and stops the control plane.
//  4. Replace puts the new data in place with two renames. The old data stays, as OldData.
//  5. ReplaceStaticPods writes etcd's static Pod again, and starts the control plane.
//
// A run that was interrupted may have changed something once Begun: then the same steps, with the journal's OldData, finish it. No
// etcd ever starts without data, or with half of it.
type EtcdDataReplacement struct {
	// Data is the directory with etcd's data, NewData the directory with the new data, OldData the later name of the old data.
	Data, NewData, OldData string
}

// NewEtcdDataReplacement is for the etcd of a static Pod. Without OldData, it's incomplete.
func NewEtcdDataReplacement(manifest []byte) (EtcdDataReplacement, error) {
	dir := EtcdDataDir(manifest)
	if !filepath.IsAbs(dir) {
		return EtcdDataReplacement{}, errors.New("it does not say where etcd's data is")
	}
	if pod, err := manifests.DecodePod(manifest); err == nil {
		if elsewhere := keepsElsewhere(pod); elsewhere != "" {
			return EtcdDataReplacement{}, errors.Errorf("etcd keeps data outside of %s (%s), which cannot be restored; see https://etcd.io/docs/v3.6/op-guide/recovery/", dir, elsewhere)
		}
	}
	return EtcdDataReplacement{Data: filepath.Join(dir, thisnode.EtcdMemberDir), NewData: filepath.Join(dir, thisnode.EtcdNewDataDir)}, nil
}

// keepsElsewhere says how a static Pod makes etcd keep data elsewhere than in one directory tree; empty if it doesn't.
func keepsElsewhere(pod *corev1.Pod) string {
	member, _ := manifests.ReadEtcd(pod)
	switch {
	case member.WALDir != "":
		return "--wal-dir=" + member.WALDir
	case member.ConfigFile != "":
		return "settings from --config-file=" + member.ConfigFile
	case member.DataDir == "":
		return ""
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if strings.HasPrefix(filepath.Clean(m.MountPath), filepath.Clean(member.DataDir)+"/") {
			return "a mount at " + m.MountPath
		}
	}
	return ""
}

// OldDataPath returns a path for the old data, for a workflow such as rollback.
func (x EtcdDataReplacement) OldDataPath(workflow string, now time.Time) string {
	return filepath.Join(filepath.Dir(x.Data), thisnode.OldEtcdDataName(workflow, now))
}

// CheckPrerequisites fails if this host can't go through all steps: once etcd's static Pod is gone, it's too late to find out.
func (x EtcdDataReplacement) CheckPrerequisites(ctx context.Context, env *step.Env) error {
	if _, err := env.Host.Unit(ctx, KubeletUnit); err != nil {
		return fault.WithRemedy(errors.WithMessage(err, "etcd's data can only be replaced while the kubelet is stopped, through systemd"),
			"run this on the host itself, where systemd runs the kubelet")
	}
	mounts, err := env.Host.Mounts(filepath.Dir(x.Data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without /proc, a rename has to find out
		return err
	}
	for _, at := range mounts {
		if at == x.Data || strings.HasPrefix(at, x.Data+"/") {
			return fault.New(fmt.Sprintf("a file system is mounted at %s, so etcd's data there cannot be renamed", at),
				"mount it at "+filepath.Dir(x.Data)+" instead, with etcd stopped; or see https://etcd.io/docs/v3.6/op-guide/recovery/")
		}
	}
	return nil
}

// Started reports whether an earlier run may have stopped etcd, or has moved its data. Before a journal with OldData, none has.
func (x EtcdDataReplacement) Started(env *step.Env) (bool, error) {
	if moved, err := x.Moved(env); err != nil || moved || x.OldData == "" {
		return moved, err
	}
	runs, err := host.Exists(env.Host, env.Config.Paths.StaticPod(manifests.EtcdName))
	return !runs && err == nil, err
}

// Moved reports whether an earlier run has begun to replace the data, so the new data is complete.
func (x EtcdDataReplacement) Moved(env *step.Env) (bool, error) {
	if x.OldData == "" {
		return false, nil
	}
	return host.Exists(env.Host, x.OldData)
}

// Clear removes the data that a killed run was making, of this workflow or another, so that it takes no space from the next run.
// None of it is in place: it stays once an earlier run has begun to replace the data, and so does a copy in which an etcd may run.
func (x EtcdDataReplacement) Clear(env *step.Env) error {
	replays, err := host.Exists(env.Host, env.Config.Paths.StaticPod(thisnode.EtcdReplayName))
	if err != nil {
		return err
	}
	return x.clear(env, func(name string) bool {
		at, ours := thisnode.ParseOldEtcdData(name)
		return ours && at.IsZero() && (!replays || name != thisnode.EtcdReplayDir)
	})
}

// clear removes the entries beside the new data that unneeded accepts, unless an earlier run has begun to replace the data.
func (x EtcdDataReplacement) clear(env *step.Env, unneeded func(name string) bool) error {
	if moved, err := x.Moved(env); err != nil || moved {
		return err
	}
	dir := filepath.Dir(x.NewData)
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return host.IgnoreForbidden(host.IgnoreMissing(err))
	}
	for _, e := range entries {
		if !unneeded(e.Name()) {
			continue
		}
		if _, err := env.Host.RemoveTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Build makes the new data with fill, as WriteTree does, after ready agrees. It starts over unless an earlier run has begun the
// replacement. fill ends with ctx, as Build does.
func (x EtcdDataReplacement) Build(ctx context.Context, env *step.Env, ready func() error, fill func(dir string) error) error {
	if moved, err := x.Moved(env); err != nil || moved {
		return err
	}
	made := filepath.Base(x.NewData)
	err := x.clear(env, func(name string) bool {
		of, partial := host.LeftoverOf(name)
		return name == made || partial && of == made
	})
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := env.Host.WriteTree(x.NewData, fill); err != nil {
		return err
	}
	if err := x.copyOwner(env); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// copyOwner gives the new data to the owner of the old, or of its directory: etcd may run as its own user.
func (x EtcdDataReplacement) copyOwner(env *step.Env) error {
	info, err := env.Host.Lstat(x.Data)
	if errors.Is(err, fs.ErrNotExist) { // lost with its disk
		info, err = env.Host.Lstat(filepath.Dir(x.Data))
	}
	if err != nil {
		return err
	}
	if owner, known := host.OwnerIn(info); known && owner != (host.Owner{}) {
		_, err = env.Host.SetTreeOwner(x.NewData, owner)
	}
	return err
}

// Stop stops etcd and its clients, each within its own grace and at most the given one. Without its static Pod, etcd starts neither
// with the kubelet nor after a reboot. An operator who has ended the command stops nothing.
func (x EtcdDataReplacement) Stop(ctx context.Context, env *step.Env, grace time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	env.UI.Printf("Stopping the kubelet and the control plane")
	if err := env.Host.Remove(env.Config.Paths.StaticPod(manifests.EtcdName)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(limited, host.StopUnit, KubeletUnit); err != nil {
		return err
	}
	if err := stopReplay(ctx, env); err != nil {
		return err
	}
	for _, component := range slices.Backward(manifests.Components(env.Config)) { // the API server before etcd
		if err := StopContainers(ctx, env, component, min(grace, GraceOf(env, component))); err != nil {
			return err
		}
	}
	return nil
}

// stopReplay stops the etcd of a recovery that was interrupted, if another workflow takes over from that.
func stopReplay(ctx context.Context, env *step.Env) error {
	path := env.Config.Paths.StaticPod(thisnode.EtcdReplayName)
	if here, err := host.Exists(env.Host, path); err != nil || !here {
		return err
	}
	if err := StopContainers(ctx, env, thisnode.EtcdReplayName, GraceOf(env, thisnode.EtcdReplayName)); err != nil {
		return err
	}
	return env.Host.Remove(path)
}

// Replace puts the new data in place of the old. No etcd runs.
func (x EtcdDataReplacement) Replace(env *step.Env) error {
	moved, err := x.Moved(env)
	if err != nil {
		return err
	}
	if !moved {
		env.UI.Printf("Keeping etcd's present data in %s", x.OldData)
		if _, err := env.Host.Rename(x.Data, x.OldData); err != nil && !errors.Is(err, fs.ErrNotExist) { // lost with its disk
			return err
		}
	}
	_, err = env.Host.Rename(x.NewData, x.Data)
	return err
}
