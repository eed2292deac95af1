// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	replayName = thisnode.EtcdReplayName
	// replayAddress is an address where nobody looks for etcd.
	replayAddress = "127.0.0.77"
)

// replayDir is the data directory of the etcd that replays the log.
func (r *Recovery) replayDir() string {
	return filepath.Join(filepath.Dir(r.replacement.Data), thisnode.EtcdReplayDir)
}

// replay lets an etcd add to a copy of the database what's only in the log: only it knows how to. Nobody can reach it, and etcd's
// own data stays as it is. An interrupted replay starts over.
func (r *Recovery) replay(ctx context.Context, env *step.Env) error {
	if moved, err := r.moved(env); err != nil || moved {
		return err
	}
	if err := r.replacement.Clear(env); err != nil {
		return err
	}
	if err := r.readLog(env); err != nil {
		return err
	}
	if r.end.pending == 0 {
		env.UI.Printf("The database has everything from the log")
		return nil
	}
	env.UI.Printf("Replaying changes missing from the database: %s", changes(r.end.pending))
	if err := r.copyForReplay(ctx, env); err != nil {
		return err
	}
	if err := r.runReplay(ctx, env); err != nil {
		return err
	}
	return r.stopReplay(ctx, env)
}

func (r *Recovery) copyForReplay(ctx context.Context, env *step.Env) error {
	copied := node.EtcdDataReplacement{Data: r.replacement.Data, NewData: r.replayDir()}
	ready := func() error { return node.Check(ctx, env, r.spaceQuestion(r.end.copies())) }
	return copied.Build(ctx, env, ready, func(dir string) error {
		return r.withSurvivor(env, r.replacement.Data, func(s *etcd.Survivor) error {
			return s.WriteReplay(ctx, dir, r.own.Name, r.own.PeerURL)
		})
	})
}

// runReplay returns once the etcd answers reads that need the whole log.
func (r *Recovery) runReplay(ctx context.Context, env *step.Env) error {
	pod, err := replayPod([]byte(r.journal.Manifest), r.own.DataDir)
	if err != nil {
		return err
	}
	since := env.Host.Now()
	file := ownership.File{Path: env.Config.Paths.StaticPod(replayName), Data: pod, Mode: 0o600}
	if _, err := file.Write(env.Host); err != nil {
		return err
	}
	if err := node.RestartKubelet(ctx, env); err != nil {
		return err
	}
	limit := &env.Config.Timeouts.UpgradeManifests
	return env.Guard(ctx, limit, env.NodeTarget(), "etcd has not replayed its log", func(ctx context.Context) error {
		return node.AwaitStarted(ctx, env, replayName, since, "")
	})
}

// replayPod is etcd's static Pod with other data, at addresses where nobody looks for it. Of two flags, the last one counts.
func replayPod(manifest []byte, dataDir string) ([]byte, error) {
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return nil, err
	}
	pod.Name, pod.Labels = replayName, map[string]string{"component": replayName, "tier": "control-plane"}
	c := &pod.Spec.Containers[0]
	c.Name = replayName
	flags := []string{
		"--data-dir=" + filepath.Join(dataDir, thisnode.EtcdReplayDir), "--listen-client-urls=https://" + replayAddress + ":2379", "--listen-peer-urls=https://" + replayAddress + ":2380",
	}
	if len(c.Args) > 0 {
		c.Args = append(c.Args, flags...)
	} else {
		c.Command = append(c.Command, flags...)
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe != nil && probe.HTTPGet != nil {
			probe.HTTPGet.Path = "/readyz"
		}
	}
	return manifests.Encode(pod)
}

// stopReplay stops the etcd that replays, if it runs, and the kubelet; also the API server that the kubelet has started with it.
// That one listens while it waits for an etcd, but never answers, and would make the next kubelet wait before it starts etcd.
func (r *Recovery) stopReplay(ctx context.Context, env *step.Env) error {
	if err := env.Host.Remove(env.Config.Paths.StaticPod(replayName)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.KubeletHealthCheck)
	defer cancel()
	if err := env.Host.OrderUnit(limited, host.StopUnit, node.KubeletUnit); err != nil {
		return err
	}
	if err := node.StopContainers(ctx, env, manifests.APIServerName, 0); err != nil {
		return err
	}
	return node.StopContainers(ctx, env, replayName, node.GraceOf(env, replayName))
}
