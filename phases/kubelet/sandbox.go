// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

// These grow with kubeletHealthCheck, once it's longer than its default of 4 minutes.
const (
	// sandboxTimeout is how long a node's first Pod may take to get its sandbox, on a slow host.
	sandboxTimeout = 2 * time.Minute
	// firstPodTimeout is how long the cluster may take to give a newly registered node its first Pod. It gives the Pods of all
	// DaemonSets at once.
	firstPodTimeout = 3 * time.Second
)

// awaitSandbox waits until the kubelet can start a Pod: a node that can't has joined for nothing. The Pods of the Pod network
// don't count, because its own comes first. If the cluster gives the node no other Pod, there's nothing to see.
func awaitSandbox(ctx context.Context, env *step.Env) error {
	name := thisnode.RegisteredName(env.Host, env.Config)
	settings, err := thisnode.KubeletSettings(env.Host, env.Settings())
	if err != nil || settings.RegisterNode != nil && !*settings.RegisterNode {
		return err
	}
	healthy := env.Config.Timeouts.KubeletHealthCheck
	limit, firstPod := max(sandboxTimeout, healthy/2), max(firstPodTimeout, healthy/80)
	env.UI.Printf("Waiting until node %s starts a Pod, up to %s", name, limit)
	if sandboxReady(ctx, env) {
		return nil
	}
	began := env.Host.Now()
	failure := "node " + name + " has joined, but it cannot start Pods"
	err = env.Guard(ctx, &limit, env.KubeletTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitNode(ctx, name, func(_ *corev1.Node, pods []corev1.Pod) error {
			given := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return cluster.IsMirror(&p) || !p.Spec.HostNetwork })
			switch {
			case sandboxReady(ctx, env), len(given) == 0 && env.Host.Now().Sub(began) >= firstPod:
				return nil
			case len(given) == 0:
				return errors.New("the cluster has not given the node a Pod yet")
			}
			return errors.Errorf("Pod %s/%s has no sandbox yet", given[0].Namespace, given[0].Name)
		})
	})
	if known := (*diagnose.Error)(nil); err == nil || errors.As(err, &known) || ctx.Err() != nil {
		return err
	}
	ui.WarnError(env.UI, errors.WithMessagef(err, "cannot tell whether node %s can start Pods", name))
	return nil
}

func sandboxReady(ctx context.Context, env *step.Env) bool {
	list, err := env.Host.Sandboxes(ctx, env.Config.CRISocket, "")
	return err == nil && slices.ContainsFunc(list, func(s host.Sandbox) bool { return s.Ready })
}
