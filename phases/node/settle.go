// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// settle waits until the other control planes may go on: this one's API server is ready, its member of etcd has a vote and the
// leader's commits, and each component is healthy. withAPI is false if the API couldn't be asked before, as without admin.conf.
func settle(ctx context.Context, env *step.Env, withAPI bool) error {
	limit := env.Config.Timeouts.UpgradeManifests
	const failure = "this control plane is not ready again"
	return diagnose.Guard(ctx, env.Host, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		components := StaticPods(env)
		for _, component := range components {
			if err := awaitHealthy(ctx, env, component); err != nil {
				return err
			}
		}
		if slices.Contains(components, manifests.EtcdName) {
			if err := caughtUp(ctx, env); err != nil {
				return err
			}
		}
		if !withAPI {
			return nil
		}
		return env.Cluster.Ready(ctx)
	})
}

func caughtUp(ctx context.Context, env *step.Env) error {
	member, found := thisnode.EtcdMember(env.Host, env.Config)
	if !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	return env.Etcd.CaughtUp(ctx, member.PeerURL)
}
