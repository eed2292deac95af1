// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// quorumError is the reason why this node's member of etcd must keep running.
type quorumError struct{ err error }

func (e *quorumError) Error() string { return e.err.Error() }
func (e *quorumError) Unwrap() error { return e.err }

// restartEtcdLate restarts an etcd that restartChanged had to leave running, or
// returns the reason why it still runs with its old certificates.
func restartEtcdLate(ctx context.Context, env *Env) error {
	stale, err := mayStopEtcd(ctx, env)
	var kept *quorumError
	switch {
	case errors.As(err, &kept):
		return fault.WithRemedy(errors.WithMessage(err, "everything else is done, but etcd was not restarted"),
			"make these members healthy (`slipway diagnose` on their nodes says what is wrong), or remove those that are lost (`etcdctl member remove ID`), then run `slipway certs renew etcd-server --restart`")
	case err != nil || !stale:
		return err
	}
	return restartTogether(ctx, env, manifests.EtcdName)
}

// mayStopEtcd reports whether this node's etcd must be restarted. The error is a
// *quorumError if it must, and the other members cannot do without it.
func mayStopEtcd(ctx context.Context, env *Env) (stale bool, err error) {
	containers, _, err := staleContainers(ctx, env, manifests.EtcdName)
	if err != nil || len(containers) == 0 {
		return false, err
	}
	return true, awaitPeers(ctx, env)
}

// awaitPeers waits until the other members of etcd can do without this node's.
// An error is a *quorumError.
func awaitPeers(ctx context.Context, env *Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return &quorumError{errors.Errorf("%s does not name this node's etcd member", thisnode.StaticPodPath(env.Config, manifests.EtcdName))}
	}
	limit := min(etcd.HealthTime, env.Config.Timeouts.EtcdAPICall)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	err := poll(ctx, func(ctx context.Context) error {
		all, err := etcd.AskHealth(ctx, env.Etcd)
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
// quorum without the member at own. If all others are healthy, it may be
// restarted, although a cluster of one or two has no quorum meanwhile.
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
		return errors.Errorf("etcd has no voting member at %s, the address in this node's static Pod, so it is not known which member is this node's", own)
	}
	quorum := len(voters)/2 + 1
	if healthy == others || healthy >= quorum {
		return nil
	}
	return errors.Errorf("of the %d members with a vote, %d besides this one must be healthy: %s", len(voters), quorum, etcd.Standing(voters, own))
}
