// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// quorumError is the reason why this node's member of etcd must keep running.
type quorumError struct{ err error }

func (e *quorumError) Error() string { return e.err.Error() }
func (e *quorumError) Unwrap() error { return e.err }

// Remedy says what to do, see package fault.
func (*quorumError) Remedy() string { return quorumRemedy }

const quorumRemedy = "make these members healthy (`slipway diagnose` on their nodes says what is wrong), or remove those that are lost (`etcdctl member remove ID`)"

// spareEtcd returns a *quorumError if etcd is one of the components that are to stop, and the other members need it. A user who
// ignores the check EtcdQuorum gets a warning. Without its static Pod, etcd does not run anyway.
func spareEtcd(ctx context.Context, env *Env, components []componentUpgrade) error {
	i := slices.IndexFunc(components, named(manifests.EtcdName))
	if i < 0 || components[i].before == nil {
		return nil
	}
	err := awaitPeers(ctx, env)
	if err == nil || ctx.Err() != nil || !preflight.Ignored(quorumCheck, env.Config.IgnorePreflightErrors) {
		return errors.WithMessage(err, "etcd cannot be restarted now")
	}
	ui.WarnError(env.UI, errors.WithMessage(err, "restarting etcd all the same"))
	return nil
}

// quorumQuestion is the check EtcdQuorum, whatever stops this node's member.
func quorumQuestion(env *Env) preflight.Question {
	return preflight.Question{Name: quorumCheck, Asks: "the other members of etcd can do without this one", Ask: func(ctx context.Context) []preflight.Finding {
		if !slices.Contains(staticPods(env), manifests.EtcdName) {
			return nil
		}
		if err := awaitPeers(ctx, env); err != nil {
			return []preflight.Finding{{Severity: preflight.Error, Fault: fault.Fault{
				Message: "this node's etcd cannot be restarted: " + err.Error(), Remedy: quorumRemedy,
			}}}
		}
		return nil
	}}
}

// nodesReadyQuestion is the check that the other control planes are Ready.
func nodesReadyQuestion(env *Env) preflight.Question {
	return preflight.Question{Name: nodesReadyCheck, Asks: "all control plane nodes are Ready", Ask: func(ctx context.Context) []preflight.Finding { return controlPlanesReady(ctx, env) }}
}

// restartEtcdLate restarts an etcd that restartChanged had to leave running, or
// returns the reason why it still runs with its old certificates.
func restartEtcdLate(ctx context.Context, env *Env) error {
	stale, err := mayStopEtcd(ctx, env)
	var kept *quorumError
	switch {
	case errors.As(err, &kept):
		return fault.WithRemedy(errors.WithMessage(err, "everything else is done, but etcd was not restarted"),
			quorumRemedy+", then run `slipway certs renew etcd-server --restart`")
	case err != nil || !stale:
		return err
	}
	mine, err := takeTurnToRenew(ctx, env)
	if err != nil {
		return err
	}
	return mine.finish(ctx, env, mine.restartStale(ctx, env, manifests.EtcdName))
}

// mayStopEtcd reports whether this node's etcd must be restarted. The error is a
// *quorumError if it must, and the other members cannot do without it.
func mayStopEtcd(ctx context.Context, env *Env) (stale bool, err error) {
	containers, err := staleContainers(ctx, env, manifests.EtcdName)
	if err != nil || len(containers) == 0 {
		return false, err
	}
	return true, awaitPeers(ctx, env)
}

// awaitPeers waits until nobody needs this node's member of etcd: the others can do without it, or it does not work anyway,
// because it does not run, or has found no leader in all that time. An error is a *quorumError.
func awaitPeers(ctx context.Context, env *Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return &quorumError{errors.Errorf("%s does not name this node's etcd member", thisnode.StaticPodPath(env.Config, manifests.EtcdName))}
	}
	limit := min(etcd.HealthTime, env.Config.Timeouts.EtcdAPICall)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	idle := false
	err := poll(limited, func(ctx context.Context) error {
		if running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName); err == nil && len(running) == 0 {
			return nil
		}
		all, err := etcd.AskHealth(ctx, env.Etcd)
		if err != nil {
			return err
		}
		idle = followsNobody(all, member.PeerURL)
		return othersSuffice(all, member.PeerURL)
	})
	if err == nil || idle && ctx.Err() == nil {
		return nil
	}
	return &quorumError{err}
}

// followsNobody reports whether the member at own says itself that it knows no leader, so that its vote is of no use.
func followsNobody(all []etcd.Health, own string) bool {
	return slices.ContainsFunc(all, func(m etcd.Health) bool {
		return m.PeerURL == own && m.Answers && m.Err != nil && m.Status.Version != "" && m.Status.Leader == 0
	})
}

// othersSuffice reports which voters are not healthy, unless the others have a
// quorum without the member at own. If all others are healthy, it may be
// restarted, although a cluster of one or two has no quorum meanwhile. A learner
// may be restarted at any time.
func othersSuffice(all []etcd.Health, own string) error {
	if slices.ContainsFunc(all, func(m etcd.Health) bool { return m.PeerURL == own && m.Learner }) {
		return nil
	}
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
