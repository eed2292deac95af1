// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Swap writes the next manifests, all at once, and waits until the components are healthy with them.
//
// Left to itself, the kubelet takes 15 to 25 seconds: it waits for the old Pod to end, notices that two seconds later, and tries
// again after ten. So Swap kills the kubelet, stops the containers, then restarts the kubelet, which starts the new Pods at once.
// After an interruption at any point, the kubelet does the same by itself.
//
// swapped has the components and everything that had to restart with them, even after an error: PutBack needs it.
func Swap(ctx context.Context, env *step.Env, turn Turn, components []Replacement) (swapped []Replacement, err error) {
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
				err := awaitSwapped(ctx, env, c, since)
				swapped[i].answered = err == nil
				return err
			})
		}
		return group.Wait()
	})
}

// awaitSwapped waits for a healthy container of the wanted manifest.
func awaitSwapped(ctx context.Context, env *step.Env, c Replacement, since time.Time) error {
	image := ImageOf(c.Wanted)
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.Name, func(found host.Container) bool {
		return !found.Created.Before(since) && (found.Image == "" || found.Image == image)
	})
	if err != nil {
		return errors.Wrapf(err, "the kubelet has not started %s with image %s; see `journalctl -u kubelet` and /var/log/pods", c.Name, image)
	}
	return WaitComponent(ctx, env, c.Name)
}
