// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// headStart limits how long the components that can do nothing without the API server wait for it, to leave it the processors. It
// needs three seconds on a machine with two slow processors, and fifteen times as long if they're emulated.
// docs/design/head-start.md has the measurements.
const headStart = time.Minute

// waitControlPlane watches over the whole control plane. Its first child says when the components that depend on the API server
// may start.
func waitControlPlane() step.Phase {
	return step.Phase{
		Name:       "wait-control-plane",
		Summary:    "Wait until the kubelet and the control plane are healthy",
		Flags:      []string{},
		Whole:      true,
		SideBySide: true,
		Children: []step.Phase{
			{Name: "api-server", Summary: "Give the API server a head start", Run: runHeadStart},
			{Name: "health", Summary: "Wait until the kubelet and the control plane are healthy", Run: runWaitHealth},
			step.Phase{Name: "network", Summary: "Ask the API whether it takes the objects of --network FILE", Run: addon.CheckNetwork}.
				Needing("wait-control-plane/health"),
		},
	}
}

// runHeadStart ends as soon as the API server gives any answer. It begins to serve a second or more before it's healthy, and
// forbids almost everybody everything until it has written its default roles. The objects that the components wait for are
// created at once; otherwise the first node gets its certificate about eight seconds later.
//
// If the API server doesn't answer, or the user interrupts the wait, runWaitHealth reports it, with its cause.
func runHeadStart(ctx context.Context, env *step.Env) error {
	probe, err := node.ComponentProbe(env, manifests.APIServerName)
	if err != nil {
		return nil
	}
	started := env.Host.Now()
	early, cancel := context.WithTimeout(ctx, headStart)
	defer cancel()
	err = node.Poll(early, func(ctx context.Context) error {
		err := env.Host.Probe(ctx, probe)
		if status := (*host.ProbeError)(nil); errors.As(err, &status) {
			return nil
		}
		return err
	})
	if err == nil {
		env.UI.Printf("kube-apiserver answers after %.1fs", env.Host.Now().Sub(started).Seconds())
		precreate(ctx, env)
	}
	return nil
}

// precreate does nothing in a cluster that existed before.
func precreate(ctx context.Context, env *step.Env) {
	if env.Rerun {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, headStart)
	defer cancel()
	if err := env.Cluster.Precreate(ctx, manifests.FirstStart(env.Config)...); err != nil {
		env.UI.Printf("kube-controller-manager and kube-scheduler need a few seconds more to start: %v", err)
	}
}

func runWaitHealth(ctx context.Context, env *step.Env) error {
	if err := node.WaitKubelet(ctx, env); err != nil {
		return err
	}
	limit := &env.Config.Timeouts.ControlPlaneComponentHealthCheck
	env.UI.Printf("Waiting for the control plane, up to %s", *limit)
	err := env.Guard(ctx, limit, env.NodeTarget(), "the control plane did not become healthy", func(ctx context.Context) error {
		// The others need the API server, so until it's healthy, there's no need to ask them.
		if err := node.WaitComponent(ctx, env, manifests.APIServerName); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		for _, component := range []string{manifests.ControllerManagerName, manifests.SchedulerName} {
			group.Go(func() error { return node.WaitComponent(ctx, env, component) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	return env.Host.Remove(thisnode.JoinUnfinished(env.Config))
}
