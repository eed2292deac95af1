// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restartEtcdLate restarts an etcd that restartChanged had to leave running, or says why it still uses its old certificates.
func restartEtcdLate(ctx context.Context, env *step.Env) error {
	stale, err := etcdRestartDue(ctx, env)
	var kept *node.QuorumError
	switch {
	case errors.As(err, &kept):
		return fault.WithRemedy(errors.WithMessage(err, "everything else is done, but etcd was not restarted"),
			node.QuorumRemedy+", then run `slipway certs renew etcd-server --restart`")
	case err != nil || !stale:
		return err
	}
	mine, err := takeTurnToRenew(ctx, env)
	if err != nil {
		return err
	}
	return mine.Finish(ctx, env, mine.RestartStale(ctx, env, manifests.EtcdName))
}

// etcdRestartDue reports whether this node's etcd must be restarted; the error is a *QuorumError if the other members can't spare
// it.
func etcdRestartDue(ctx context.Context, env *step.Env) (stale bool, err error) {
	containers, err := node.StaleContainers(ctx, env, manifests.EtcdName)
	if err != nil || len(containers) == 0 {
		return false, err
	}
	return true, node.AwaitPeers(ctx, env)
}
