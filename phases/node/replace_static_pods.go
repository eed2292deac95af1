// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ReplaceStaticPods writes the next manifests, all at once, and waits until the components are healthy with them.
//
// Left to itself, the kubelet takes 15 to 25 seconds: it waits for the old Pod to end, notices that two seconds later, and tries
// again after ten. So ReplaceStaticPods kills the kubelet, stops the containers, then restarts the kubelet, which starts the new
// Pods at once. After an interruption at any point, the kubelet does the same by itself.
//
// swapped has the components and everything that had to restart with them, even after an error: RollBack needs it.
func ReplaceStaticPods(ctx context.Context, env *step.Env, turn Lease, components []Replacement) (swapped []Replacement, err error) {
	since := env.Host.Now()
	swapped, err = stopStaticPods(ctx, env, turn, components, nextKubelet)
	if err != nil {
		return swapped, err
	}
	if err := RestartKubelet(ctx, env); err != nil {
		return swapped, err
	}
	limit := &env.Config.Timeouts.UpgradeManifests
	failure := NamesOf(swapped) + " did not become healthy after the restart"
	return swapped, env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, c := range swapped {
			group.Go(func() error {
				err := AwaitStarted(ctx, env, c.Name, since, manifests.ImageOf(c.Wanted))
				swapped[i].answered = err == nil
				return err
			})
		}
		return group.Wait()
	})
}
