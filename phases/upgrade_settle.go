// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/manifests"
)

// settle waits until the other control planes can do without this one's attention: its API server is ready, its member of
// etcd has a vote and follows the leader, and each of its components is healthy.
func settle(ctx context.Context, env *Env) error {
	limit := env.Config.Timeouts.UpgradeManifests
	const failure = "this control plane is not ready after the upgrade"
	return diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		for _, component := range manifests.Components(env.Config) {
			if err := waitComponent(ctx, env, component); err != nil {
				return err
			}
		}
		if unlessLocalEtcd(env) == "" {
			if err := poll(ctx, func(ctx context.Context) error { return isVoting(ctx, env) }); err != nil {
				return err
			}
		}
		return env.Cluster.Ready(ctx)
	})
}

// isVoting returns why this node's member of etcd does not take part.
func isVoting(ctx context.Context, env *Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	for _, m := range all {
		switch {
		case m.PeerURL != member.PeerURL:
		case m.Err != nil:
			return m.Err
		case m.Learner:
			return errors.New("this node's member of etcd has no vote yet")
		default:
			return nil
		}
	}
	return errors.Errorf("etcd has no member at %s, the address in this node's static Pod", member.PeerURL)
}
