// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// replace writes a component's manifest, upon which the kubelet may replace it, and stops the containers of the previous one. Its
// dependents have been stopped already.
func (t Turn) replace(ctx context.Context, env *step.Env, c ComponentUpgrade) error {
	if ctx.Err() != nil { // before the kubelet sees the new manifest
		return context.Cause(ctx)
	}
	grace := GraceOf(env, c.Name) // from the running manifest
	file := ownership.File{Path: thisnode.StaticPodPath(env.Config, c.Name), Data: c.Wanted, Mode: 0o600}
	if _, err := file.Write(env.Host); err != nil {
		return err
	}
	t.Stops()
	return StopContainers(ctx, env, c.Name, grace)
}

// Turn is this control plane's right to restart its components while it holds the Lease. Only Turn's methods stop them.
type Turn struct {
	what Purpose
	// Held is false if the API doesn't answer, so nobody can hold the Lease, or if this host has no credentials for it.
	Held bool
	// continued is set if this node already holds the Lease, or may, from an interrupted or failed run.
	continued bool
	// stopped is set once this run has stopped something; nil if there's no turn to return.
	stopped *bool
	// release gives the Lease back. Only a node in good order does: any other keeps it.
	release func(context.Context) error
}

func (t Turn) Stops() {
	if t.stopped != nil {
		*t.stopped = true
	}
}

// TakeTurn waits until no other control plane restarts its components, and makes this node the holder of the Lease. It renews the
// Lease until the end of the run. An earlier run's unfinished change of this node's version keeps the Lease.
func TakeTurn(ctx context.Context, env *step.Env, what Purpose) (Turn, error) {
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.UpgradeManifests)
	defer cancel()
	held, seen, before := (*HeldError)(nil), watch{}, Purpose("")
	err := retry.Policy{First: TurnInterval, Passes: func(err error) bool { return errors.As(err, &held) }}.Do(limited, func(ctx context.Context) (err error) {
		over := seen.abandoned(env)
		before, err = hold(ctx, env, what, over)
		switch {
		case errors.As(err, &held):
			if seen.changes(held) {
				env.UI.Warn(fmt.Sprintf("waiting, up to %s: %v", env.Config.Timeouts.UpgradeManifests, held), held.remedy())
			}
		case err == nil && over != nil:
			env.UI.Warn(fmt.Sprintf("continuing without it: %v", over), "once that node is back, run "+purposes[over.what].runs+" there")
		}
		return err
	})
	switch {
	case errors.As(err, &held):
		return Turn{}, fault.WithRemedy(err, held.remedy())
	case err != nil:
		return Turn{}, err
	}
	stop := repeat(ctx, leaseRenewal, func(ctx context.Context) { _, _ = hold(ctx, env, what, nil) }) // the API may be away meanwhile
	return Turn{what: what, Held: true, continued: before != "", stopped: new(bool), release: func(ctx context.Context) error {
		stop()
		return release(ctx, env, what)
	}}, nil
}

// ReachTime limits how long a run waits for an API it can do without: people roll back or renew certificates because it's down.
const ReachTime = 5 * time.Second

// TakeTurnIfAnswered is TakeTurn if the API answers. Otherwise nobody can see who else restarts components, and only the health
// of etcd's other members decides whether this one may stop (Turn.stop).
func TakeTurnIfAnswered(ctx context.Context, env *step.Env, what Purpose) (Turn, error) {
	limited, cancel := context.WithTimeout(ctx, ReachTime)
	defer cancel()
	err := env.Cluster.Ready(limited)
	if err == nil {
		return TakeTurn(ctx, env, what)
	}
	if ctx.Err() != nil {
		return Turn{}, err
	}
	ui.WarnError(env.UI, err)
	if MayHavePeers(ctx, env) {
		env.UI.Warn("the API does not answer, so it is unknown whether another control plane restarts its components, too",
			"make sure that no other control plane is being upgraded, rolled back or restarted")
	}
	return Turn{what: what, continued: true, stopped: new(bool), release: func(ctx context.Context) error { // an earlier run may hold the Lease
		limited, cancel := context.WithTimeout(ctx, ReachTime)
		defer cancel()
		if err := release(limited, env, what); what.changesVersion() {
			return err
		}
		return ctx.Err() // the next run tries again
	}}, nil
}

// MayHavePeers reports whether another member of etcd works, or may: etcd may be external, or not answer.
func MayHavePeers(ctx context.Context, env *step.Env) bool {
	member, found := thisnode.EtcdMember(env.Host, env.Config)
	if !found {
		return true
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	return err != nil || slices.ContainsFunc(all, func(m etcd.Health) bool { return m.PeerURL != member.PeerURL && m.Err == nil })
}

// FinishEarlier ends the turn of an earlier run that was interrupted after its last restart: nothing else would.
func FinishEarlier(ctx context.Context, env *step.Env, what Purpose) error {
	limited, cancel := context.WithTimeout(ctx, ReachTime)
	defer cancel()
	lease := newUpgradeLease()
	found, err := env.Cluster.Get(limited, lease)
	if err != nil || !found || holderOf(lease) != env.Config.Name || purposeOf(lease) != what {
		return ctx.Err() // without the API, the next run looks again
	}
	mine, err := TakeTurn(ctx, env, what)
	if err != nil {
		return err
	}
	return mine.Finish(ctx, env, nil)
}

// Unused ends a turn after an error before any stop. If an earlier run may have stopped something, the node keeps the Lease.
func (t Turn) Unused(ctx context.Context, err error) error {
	if t.continued {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReachTime)
	defer cancel()
	if released := t.release(ctx); err == nil {
		err = released
	}
	return err
}

// Finish ends a turn. Other control planes may go on after a success, or a failure that has left this node as it was.
func (t Turn) Finish(ctx context.Context, env *step.Env, failed error) error {
	var restored *RestoredError
	if failed != nil && !errors.As(failed, &restored) {
		if *t.stopped {
			return failed
		}
		return t.Unused(ctx, failed)
	}
	err := settle(ctx, env, t.Held || t.what.changesVersion())
	switch {
	case err == nil:
		err = t.release(ctx)
	case !*t.stopped:
		return t.Unused(ctx, err)
	}
	if failed != nil && err != nil {
		return errors.WithMessagef(failed, "this control plane keeps the Lease %s, because it is not ready again (%v)", upgradeLease, err)
	}
	return cmp.Or(failed, err)
}

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
