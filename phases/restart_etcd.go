// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// peersTime is how long the other members of etcd get to become healthy: they
// may be restarting, or electing a leader.
const peersTime = 10 * time.Second

// quorumError is why this node's member of etcd must go on running.
type quorumError struct{ err error }

func (e *quorumError) Error() string { return e.err.Error() }
func (e *quorumError) Unwrap() error { return e.err }

// restartEtcdLate restarts an etcd that restartChanged had to leave running, or
// ends with the reason why it still runs as before.
func restartEtcdLate(ctx context.Context, env *Env) error {
	stale, _, err := staleContainers(ctx, env, manifests.EtcdName)
	if err != nil || len(stale) == 0 {
		return err
	}
	err = restartComponent(ctx, env, manifests.EtcdName)
	var kept *quorumError
	if errors.As(err, &kept) {
		return errors.Errorf("everything else is done, but etcd was not restarted: %v. "+
			"Make these members healthy (`slipway diagnose` on their nodes says what is wrong), or remove those that are gone for good (`etcdctl member remove ID`), then run `slipway certs renew etcd-server --restart`",
			err)
	}
	return err
}

// awaitPeers waits until the other members of etcd do without this node's. An
// error is a *quorumError.
func awaitPeers(ctx context.Context, env *Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return &quorumError{errors.Errorf("%s does not say which member of etcd this node has", thisnode.StaticPodPath(env.Config, manifests.EtcdName))}
	}
	limit := min(peersTime, env.Config.Timeouts.EtcdAPICall)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		all, err := env.Etcd.Health(ctx)
		if err != nil {
			return err
		}
		return othersSuffice(all, member.PeerURL)
	})
	if err != nil {
		return &quorumError{err}
	}
	return nil
}

// othersSuffice reports which voters are not healthy, unless the others have a
// quorum without the member at own. Where all others are healthy, it may be
// restarted, although two or one cannot do without it meanwhile.
func othersSuffice(all []etcd.Health, own string) error {
	voters := slices.DeleteFunc(slices.Clone(all), func(m etcd.Health) bool { return m.Learner })
	others, healthy := 0, 0
	for _, m := range voters {
		if m.PeerURL == own {
			continue
		}
		others++
		if m.Err == nil {
			healthy++
		}
	}
	if others == len(voters) {
		return errors.Errorf("etcd has no voter at %s, which is the address of this node's member in its static Pod, so none of them is known to be this node's", own)
	}
	quorum := len(voters)/2 + 1
	if healthy == others || healthy >= quorum {
		return nil
	}
	return errors.Errorf("of the %d members with a vote, %d besides this one must be healthy: %s", len(voters), quorum, standing(voters, own))
}
