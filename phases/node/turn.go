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

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

// replace writes a component's manifest, from when on the kubelet may replace the component, and stops the containers that were made from the one before. What depends on it has
// been stopped already.
func (t Turn) replace(ctx context.Context, env *step.Env, c ComponentUpgrade) error {
	if ctx.Err() != nil { // before the kubelet is told to replace it
		return context.Cause(ctx)
	}
	grace := GraceOf(env, c.Name) // by the manifest that it runs with
	file := ownership.File{Path: thisnode.StaticPodPath(env.Config, c.Name), Data: c.Wanted, Mode: 0o600}
	if _, err := file.Write(env.Host); err != nil {
		return err
	}
	t.Stops()
	return StopContainers(ctx, env, c.Name, grace)
}

// Turn is the right of this control plane to restart its components, which it has while it holds the Lease. Only its methods
// stop them.
type Turn struct {
	what Purpose
	// held is false if the API does not answer, so that nobody can hold the Lease, or if this host has no credentials for it.
	Held bool
	// continued is set if this node has held the Lease already, or may have: an earlier run was interrupted or has failed.
	continued bool
	// stopped is set once this run has stopped something; nil for a turn that nobody has to give back.
	stopped *bool
	// giveBack is for a node that is as it should be; otherwise the Lease stays with it.
	giveBack func(context.Context) error
}

// Stops notes that this run stops something.
func (t Turn) Stops() {
	if t.stopped != nil {
		*t.stopped = true
	}
}

// TakeTurn waits until no other control plane restarts its components, and makes this node the holder of the Lease. It renews
// it until the end of the run. An earlier run of this node that changes its version keeps the Lease.
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
			env.UI.Warn(fmt.Sprintf("going on without it: %v", over), "once that node is back, run "+purposes[over.what].runs+" there")
		}
		return err
	})
	switch {
	case errors.As(err, &held):
		return Turn{}, fault.WithRemedy(err, held.remedy())
	case err != nil:
		return Turn{}, err
	}
	stop := keepTurn(ctx, env, what)
	return Turn{what: what, Held: true, continued: before != "", stopped: new(bool), giveBack: func(ctx context.Context) error {
		stop()
		return release(ctx, env, what)
	}}, nil
}

// ReachTime limits how long a run that does without the API waits for it: people go back or renew certificates because it is
// down.
const ReachTime = 5 * time.Second

// TakeTurnIfAnswered is TakeTurn if the API answers. If it does not, nobody can see who else restarts components. Then the
// health of etcd's other members alone says whether this one may stop (turn.stop).
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
	return Turn{what: what, continued: true, stopped: new(bool), giveBack: func(ctx context.Context) error { // an earlier run may have it
		limited, cancel := context.WithTimeout(ctx, ReachTime)
		defer cancel()
		if err := release(limited, env, what); what.changesVersion() {
			return err
		}
		return ctx.Err() // the next run tries again
	}}, nil
}

// MayHavePeers reports whether another member of etcd works, or may: that of an external etcd, or if nobody can be asked.
func MayHavePeers(ctx context.Context, env *step.Env) bool {
	member, found := etcdmember.Local(env.Host, env.Config)
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

// Unused ends a turn in which nothing was stopped, because of an error, which may be an interruption. What an earlier run may
// have stopped keeps the Lease.
func (t Turn) Unused(ctx context.Context, err error) error {
	if t.continued {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReachTime)
	defer cancel()
	return cmp.Or(err, t.giveBack(ctx))
}

// Finish ends a turn. Other control planes may go on after a success, and after a failure that has left this node as it was.
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
		err = t.giveBack(ctx)
	case !*t.stopped:
		return t.Unused(ctx, err)
	}
	if failed != nil && err != nil {
		return errors.WithMessagef(failed, "this control plane keeps the Lease %s, because it is not ready again (%v)", upgradeLease, err)
	}
	return cmp.Or(failed, err)
}
