// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

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
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// turn is the right of this control plane to restart its components, which it has while it holds the Lease. Only its methods
// stop them.
type turn struct {
	what purpose
	// held is false if the API does not answer, so that nobody can hold the Lease, or if this host has no credentials for it.
	held bool
	// continued is set if this node has held the Lease already, or may have: an earlier run was interrupted or has failed.
	continued bool
	// stopped is set once this run has stopped something; nil for a turn that nobody has to give back.
	stopped *bool
	// giveBack is for a node that is as it should be; otherwise the Lease stays with it.
	giveBack func(context.Context) error
}

// stops notes that this run stops something.
func (t turn) stops() {
	if t.stopped != nil {
		*t.stopped = true
	}
}

// takeTurn waits until no other control plane restarts its components, and makes this node the holder of the Lease. It renews
// it until the end of the run. An earlier run of this node that changes its version keeps the Lease.
func takeTurn(ctx context.Context, env *Env, what purpose) (turn, error) {
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.UpgradeManifests)
	defer cancel()
	held, seen, before := (*heldError)(nil), watch{}, purpose("")
	err := retry.Policy{First: turnInterval, Passes: func(err error) bool { return errors.As(err, &held) }}.Do(limited, func(ctx context.Context) (err error) {
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
		return turn{}, fault.WithRemedy(err, held.remedy())
	case err != nil:
		return turn{}, err
	}
	stop := keepTurn(ctx, env, what)
	return turn{what: what, held: true, continued: before != "", stopped: new(bool), giveBack: func(ctx context.Context) error {
		stop()
		return release(ctx, env, what)
	}}, nil
}

// reachTime limits how long a run that does without the API waits for it: people go back or renew certificates because it is
// down.
const reachTime = 5 * time.Second

// takeTurnIfAnswered is takeTurn if the API answers. If it does not, nobody can see who else restarts components. Then the
// health of etcd's other members alone says whether this one may stop (turn.stop).
func takeTurnIfAnswered(ctx context.Context, env *Env, what purpose) (turn, error) {
	limited, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	err := env.Cluster.Ready(limited)
	if err == nil {
		return takeTurn(ctx, env, what)
	}
	if ctx.Err() != nil {
		return turn{}, err
	}
	ui.WarnError(env.UI, err)
	if mayHavePeers(ctx, env) {
		env.UI.Warn("the API does not answer, so it is unknown whether another control plane restarts its components, too",
			"make sure that no other control plane is being upgraded, rolled back or restarted")
	}
	return turn{what: what, continued: true, stopped: new(bool), giveBack: func(ctx context.Context) error { // an earlier run may have it
		limited, cancel := context.WithTimeout(ctx, reachTime)
		defer cancel()
		if err := release(limited, env, what); what.changesVersion() {
			return err
		}
		return ctx.Err() // the next run tries again
	}}, nil
}

// mayHavePeers reports whether another member of etcd works, or may: that of an external etcd, or if nobody can be asked.
func mayHavePeers(ctx context.Context, env *Env) bool {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return true
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	return err != nil || slices.ContainsFunc(all, func(m etcd.Health) bool { return m.PeerURL != member.PeerURL && m.Err == nil })
}

// finishEarlier ends the turn of an earlier run that was interrupted after its last restart: nothing else would.
func finishEarlier(ctx context.Context, env *Env, what purpose) error {
	limited, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	lease := newUpgradeLease()
	found, err := env.Cluster.Get(limited, lease)
	if err != nil || !found || holderOf(lease) != env.Config.Name || purposeOf(lease) != what {
		return ctx.Err() // without the API, the next run looks again
	}
	mine, err := takeTurn(ctx, env, what)
	if err != nil {
		return err
	}
	return mine.finish(ctx, env, nil)
}

// unused ends a turn in which nothing was stopped, because of an error, which may be an interruption. What an earlier run may
// have stopped keeps the Lease.
func (t turn) unused(ctx context.Context, err error) error {
	if t.continued {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reachTime)
	defer cancel()
	return cmp.Or(err, t.giveBack(ctx))
}

// finish ends a turn. Other control planes may go on after a success, and after a failure that has left this node as it was.
func (t turn) finish(ctx context.Context, env *Env, failed error) error {
	var restored *restoredError
	if failed != nil && !errors.As(failed, &restored) {
		if *t.stopped {
			return failed
		}
		return t.unused(ctx, failed)
	}
	err := settle(ctx, env, t.held || t.what.changesVersion())
	switch {
	case err == nil:
		err = t.giveBack(ctx)
	case !*t.stopped:
		return t.unused(ctx, err)
	}
	if failed != nil && err != nil {
		return errors.WithMessagef(failed, "this control plane keeps the Lease %s, because it is not ready again (%v)", upgradeLease, err)
	}
	return cmp.Or(failed, err)
}
