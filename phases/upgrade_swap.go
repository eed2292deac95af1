// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// swap makes components run with their new manifests, all at once.
//
// Left to itself, the kubelet takes 15 to 25 seconds: it waits for the old Pod to end, notices that two seconds later, and
// tries again after ten. So the containers are stopped here, and then the kubelet is restarted: it starts what it finds at
// once. An interruption at any point leaves a kubelet that runs, and that does the same by itself.
func swap(ctx context.Context, env *Env, components []componentUpgrade) error {
	if len(components) == 0 {
		return nil
	}
	var names []string
	for _, c := range components {
		names = append(names, c.name)
	}
	env.UI.Printf("Upgrading %s", strings.Join(names, " and "))
	since := env.Host.Now()
	grace := map[string]time.Duration{}
	for _, c := range components {
		grace[c.name] = graceOf(env, c.name)
	}
	for _, c := range components {
		file := ownership.File{Path: thisnode.StaticPodPath(env.Config, c.name), Data: c.wanted, Mode: 0o600}
		if _, err := file.Write(env.Host); err != nil {
			return err
		}
	}
	if err := stopComponents(ctx, env, components, grace); err != nil {
		return err
	}
	if err := restartKubelet(ctx, env); err != nil {
		return err
	}
	limit := env.Config.Timeouts.UpgradeManifests
	failure := strings.Join(names, " and ") + " did not become healthy after the upgrade"
	return diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, c := range components {
			group.Go(func() error { return awaitUpgraded(ctx, env, c, since) })
		}
		return group.Wait()
	})
}

func stopComponents(ctx context.Context, env *Env, components []componentUpgrade, grace map[string]time.Duration) error {
	for _, c := range slices.Backward(components) { // the API server before etcd
		running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.name)
		if err != nil {
			return err
		}
		for _, container := range running {
			if err := env.Host.StopContainer(ctx, env.Config.CRISocket, container.ID, grace[c.name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitUpgraded waits for a healthy container of the new manifest.
func awaitUpgraded(ctx context.Context, env *Env, c componentUpgrade, since time.Time) error {
	image := env.Config.Image(c.name)
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.name, func(found host.Container) bool {
		return !found.Created.Before(since) && (found.Image == "" || found.Image == image)
	})
	if err != nil {
		return errors.Wrapf(err, "the kubelet has not started %s of %s; see `journalctl -u kubelet` and /var/log/pods", c.name, image)
	}
	if c.name == manifests.EtcdName {
		// Without it, the API server is not healthy either.
		return nil
	}
	return waitComponent(ctx, env, c.name)
}
