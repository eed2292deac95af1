// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// QuorumError says why this node's member of etcd must keep running.
type QuorumError struct{ err error }

func (e *QuorumError) Error() string { return e.err.Error() }

func (e *QuorumError) Unwrap() error { return e.err }

// unknownMembersError means that nobody says which members etcd has.
type unknownMembersError struct{ error }

func (e unknownMembersError) Unwrap() error { return e.error }

// Remedy returns QuorumRemedy, unless nothing is known about other members, perhaps because etcd doesn't accept this host's
// certificates.
func (e *QuorumError) Remedy() string {
	switch by := (thisnode.Interruption{}); {
	case errors.As(e.err, &by):
		return by.Remedy()
	case etcd.CredentialsFail(e.err):
		return "see `slipway certs check-expiration`, and renew what has expired: `slipway certs renew apiserver-etcd-client` for the API server's certificate"
	case errors.As(e.err, new(unknownMembersError)):
		return "`slipway diagnose` says why this node's etcd does not answer"
	}
	return QuorumRemedy
}

// QuorumRemedy is the remedy if other members aren't healthy.
const QuorumRemedy = "make these members healthy (`slipway diagnose` on their nodes says what is wrong), or remove lost members (`slipway etcd member remove ID`)"

// CheckRemovalQuorum returns a *QuorumError if etcd would have no quorum without the member.
func CheckRemovalQuorum(all []etcd.Health, m etcd.Member) error {
	if etcd.QuorumWithout(all, m.PeerURL) {
		return nil
	}
	return &QuorumError{errors.Errorf("etcd would have no quorum without member %s: of the others, %s", m.Label(), etcd.DescribeHealth(all, m.PeerURL))}
}

// CheckEtcdCanStop returns a *QuorumError if etcd is to stop, and the other members need it. If the user ignores the check
// EtcdQuorum, it only warns. Without its static Pod, etcd isn't running anyway.
func CheckEtcdCanStop(ctx context.Context, env *step.Env, components []Replacement) error {
	i := slices.IndexFunc(components, named(manifests.EtcdName))
	if i < 0 || components[i].Before == nil {
		return nil
	}
	err := AwaitPeers(ctx, env)
	if err == nil || ctx.Err() != nil || !fault.Ignored(fault.EtcdQuorum, env.Config.IgnorePreflightErrors) {
		return errors.WithMessage(err, "etcd cannot be restarted now")
	}
	ui.WarnError(env.UI, errors.WithMessage(err, "restarting etcd anyway"))
	return nil
}

// NewQuorumCheck is the check EtcdQuorum for workflows that stop this node's member.
func NewQuorumCheck(env *step.Env) preflight.Check {
	return NewQuorumCheckIf(env, func(context.Context) bool { return slices.Contains(StaticPods(env), manifests.EtcdName) }, AwaitPeers)
}

// NewQuorumCheckIf is NewQuorumCheck for workflows that may not stop the member. ask reports why the others need it, like
// AwaitPeers.
func NewQuorumCheckIf(env *step.Env, stops func(context.Context) bool, ask func(context.Context, *step.Env) error) preflight.Check {
	return preflight.Check{Name: fault.EtcdQuorum, Description: "the other members of etcd can do without this one", Run: func(ctx context.Context, _ preflight.View) []fault.Finding {
		if !stops(ctx) {
			return nil
		}
		if err := ask(ctx, env); err != nil {
			return []fault.Finding{fault.NewFinding("", fault.Error, cmp.Or(fault.Remedy(err), QuorumRemedy), "this node's etcd cannot be restarted: %v", err)}
		}
		return nil
	}}
}

// AwaitPeers waits until nobody needs this node's member of etcd: the others can do without it, there are none, or it doesn't work
// anyway, as it's down, or has found no leader in all that time. Its errors are *QuorumErrors.
func AwaitPeers(ctx context.Context, env *step.Env) error {
	member, found := thisnode.EtcdMember(env.Host, env.Config.Paths)
	if !found {
		if by, interrupted, _ := thisnode.InterruptedEtcd(env.Host, env.Config.Paths.Kubernetes); interrupted {
			return &QuorumError{by}
		}
		return &QuorumError{errors.Errorf("%s does not name this node's etcd member", env.Config.Paths.StaticPod(manifests.EtcdName))}
	}
	limit := min(etcd.HealthTimeout, env.Config.Timeouts.EtcdAPICall)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	idle := false
	err := Poll(limited, func(ctx context.Context) error {
		if running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, manifests.EtcdName); err == nil && len(running) == 0 {
			return nil
		}
		all, err := healthOfMembers(ctx, env, member)
		if err != nil {
			return err
		}
		own := OwnPeerURL(env, etcd.MembersOf(all))
		idle = hasNoLeader(all, own)
		return CheckQuorumOfOthers(all, own)
	})
	if err == nil || idle && ctx.Err() == nil {
		return nil
	}
	return &QuorumError{err}
}

// healthOfMembers asks etcd for its members' health. If it serves no clients, this node's member may still tell its peers who the
// members are, and each of them is asked. A member that's alone has nobody who needs it.
func healthOfMembers(ctx context.Context, env *step.Env, own manifests.LocalMember) ([]etcd.Health, error) {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err == nil {
		return all, nil
	}
	for _, peer := range env.Etcd.Peers(ctx, append(own.PeerURLs(), manifests.EtcdLocalPeerURL(env.Config))) {
		if i, _ := OwnMember(env, peer.Members); i >= 0 {
			return env.Etcd.HealthOf(ctx, peer.Members), nil
		}
	}
	return nil, unknownMembersError{err}
}

// MayHavePeers reports whether another member of etcd works, or may: etcd may be external, or not answer.
func MayHavePeers(ctx context.Context, env *step.Env) bool {
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found {
		return true
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	own := OwnPeerURL(env, etcd.MembersOf(all))
	return err != nil || slices.ContainsFunc(all, func(m etcd.Health) bool { return !m.At(own) && m.Err == nil })
}

// hasNoLeader reports whether the member at own says it knows no leader, so its vote is of no use.
func hasNoLeader(all []etcd.Health, own string) bool {
	return slices.ContainsFunc(all, func(m etcd.Health) bool {
		return m.At(own) && m.Answers && m.Err != nil && m.Status.Version != "" && m.Status.Leader == 0
	})
}

// CheckQuorumOfOthers reports unhealthy voters, unless the others have a quorum without the member at own. If all others are
// healthy, it may restart, although a cluster of one or two then has no quorum. A learner may restart at any time.
func CheckQuorumOfOthers(all []etcd.Health, own string) error {
	if slices.ContainsFunc(all, func(m etcd.Health) bool { return m.At(own) && m.Learner }) {
		return nil
	}
	voters := slices.DeleteFunc(slices.Clone(all), func(m etcd.Health) bool { return m.Learner })
	others, healthy := etcd.CountVoters(slices.DeleteFunc(slices.Clone(voters), func(m etcd.Health) bool { return m.At(own) }))
	if others == len(voters) {
		return errors.Errorf("etcd has no voting member at %s, the address in this node's static Pod, so it is not known which member is this node's", own)
	}
	quorum := etcd.Majority(len(voters))
	if healthy == others || healthy >= quorum {
		return nil
	}
	return errors.Errorf("of the %d members with a vote, %d besides this one must be healthy: %s", len(voters), quorum, etcd.DescribeHealth(voters, own))
}
