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
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Lease is this control plane's right to restart its components while it holds the Lease. ReplaceStaticPods, RollBack and
// RestartStale need it. It ends with Cancel or Release. The zero Lease is for runs that stop nothing, such as plans.
type Lease struct {
	purpose Purpose
	// Held is false if the API doesn't answer, so nobody can hold the Lease, or if this host has no credentials for it.
	Held bool
	// keepOnFailure is set if a failed run keeps the Lease, because it may have stopped something. It's nil in the zero Lease, and in
	// one that ends with cancel after any failure.
	keepOnFailure *bool
	// release returns the Lease. Only a node in good order does: any other keeps it. cancel is for a run that has stopped nothing: it
	// returns the Lease, or leaves it to the interrupted or failed run that had it before.
	release, cancel func(context.Context) error
	// stop ends the renewal of the Lease; nil if there's none.
	stop func()
}

// NoLease is for a worker: it has no components to restart, and no right to the Lease.
func NoLease() Lease {
	nothing := func(context.Context) error { return nil }
	return Lease{keepOnFailure: new(bool), release: nothing, cancel: nothing}
}

// turnInterval is how often a waiting run looks at the Lease, or repeats its checks.
const turnInterval = time.Second

// AcquireLease waits until no other control plane restarts its components, and makes this node the holder of the Lease. It renews
// the Lease until the turn or the run ends. An earlier run's unfinished change of this node's version keeps the Lease.
func AcquireLease(ctx context.Context, env *step.Env, purpose Purpose) (Lease, error) {
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.UpgradeManifests)
	defer cancel()
	held, seen, before := (*HeldError)(nil), leaseWatch{}, Purpose("")
	err := retry.Policy{First: turnInterval, Retryable: func(err error) bool { return errors.As(err, &held) }}.Do(limited, func(ctx context.Context) (err error) {
		over := seen.abandoned(env)
		before, err = takeLease(ctx, env, purpose, over)
		switch {
		case errors.As(err, &held):
			if seen.changes(held) {
				ui.WarnError(env.UI, errors.WithMessagef(held, "waiting, up to %s", env.Config.Timeouts.UpgradeManifests))
			}
		case err == nil && over != nil:
			env.UI.Warn(fmt.Sprintf("no longer waiting: %v", over), "once that node is back, run "+purposes[over.purpose].runs+" there")
		}
		return err
	})
	if err != nil {
		withdraw(ctx, env, purpose, err)
		return Lease{}, err
	}
	stop := Repeat(ctx, leaseRenewal, func(ctx context.Context) { _, _ = takeLease(ctx, env, purpose, nil) }) // the API may be away meanwhile
	mine := Lease{purpose: purpose, Held: true, keepOnFailure: new(bool), stop: stop, release: func(ctx context.Context) error {
		stop()
		return returnLease(ctx, env, purpose)
	}}
	if mine.cancel = mine.release; before != "" {
		mine.cancel = func(ctx context.Context) error {
			stop()
			return restorePurpose(ctx, env, before)
		}
	}
	return mine, nil
}

// ReachTimeout limits how long a run waits for an API it can do without: people roll back or renew certificates because it's down.
const ReachTimeout = 10 * time.Second

// AcquireLeaseIfReachable is AcquireLease if the API answers. Otherwise nobody can see who else restarts components, and only the
// health of etcd's other members decides whether this member may stop (stopStaticPods). A restore also goes on if etcd has no room
// for a Lease: it may be what makes room.
func AcquireLeaseIfReachable(ctx context.Context, env *step.Env, purpose Purpose) (Lease, error) {
	limited, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	err := env.Cluster.Ready(limited)
	if err == nil && purpose == ForRestore && isFull(ctx, env) { // the API would try to write the Lease for minutes
		err = errors.New("etcd is full (alarm NOSPACE), so the run continues without the Lease")
	}
	if err == nil {
		return AcquireLease(ctx, env, purpose)
	}
	if ctx.Err() != nil {
		return Lease{}, err
	}
	ui.WarnError(env.UI, err)
	if MayHavePeers(ctx, env) {
		env.UI.Warn("without the Lease, it is unknown whether another control plane restarts its components, too",
			"make sure that no other control plane is being upgraded, rolled back or restarted")
	}
	return leaseWithoutAPI(env, purpose), nil
}

// isFull reports whether etcd accepts no writes, because it has reached its quota.
func isFull(ctx context.Context, env *step.Env) bool {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	return err == nil && etcd.HasAlarm(all, "NOSPACE")
}

func leaseWithoutAPI(env *step.Env, purpose Purpose) Lease {
	keep := func(context.Context) error { return nil } // an earlier run may hold the Lease
	return Lease{purpose: purpose, keepOnFailure: new(bool), cancel: keep, release: func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, ReachTimeout)
		defer cancel()
		if err := returnLease(limited, env, purpose); purpose.changesVersion() {
			return err
		}
		return ctx.Err() // the next run tries again
	}}
}

// ResumeLease is AcquireLeaseIfReachable for a unit that tries to put this node back until it succeeds. If putting back never
// succeeded, others would wait for this node for ever: so a try doesn't renew the Lease of the interrupted run, and a failed one returns
// a Lease that it took itself. If others may take the interrupted run's Lease before a try ends, it takes it again before it stops
// anything.
func ResumeLease(ctx context.Context, env *step.Env, purpose Purpose) (Lease, error) {
	mine, last, found := interruptedLease(ctx, env, purpose)
	try := min(2*env.Config.Timeouts.UpgradeManifests, leaseAbandoned/2)
	if found && env.Host.Now().Sub(last) < leaseAbandoned-try {
		return mine, nil
	}
	mine, err := AcquireLeaseIfReachable(ctx, env, purpose)
	mine.keepOnFailure = nil
	if found {
		mine.cancel = mine.release
	}
	return mine, err
}

// interruptedLease is the turn that an earlier run of this node has left, which still ends an hour after last, that run's last renewal.
func interruptedLease(ctx context.Context, env *step.Env, purpose Purpose) (mine Lease, last time.Time, found bool) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	lease := newUpgradeLease()
	found, err := env.Cluster.Get(ctx, lease)
	if err != nil || !found || holderOf(lease) != env.Config.Name || purposeOf(lease) != purpose {
		return Lease{}, last, false
	}
	if lease.Spec.RenewTime != nil {
		last = lease.Spec.RenewTime.Time
	}
	keep := func(context.Context) error { return nil }
	return Lease{purpose: purpose, Held: true, keepOnFailure: new(bool), cancel: keep, release: func(ctx context.Context) error {
		return returnLease(ctx, env, purpose)
	}}, last, true
}

// ReleaseInterruptedLease ends the turn of an earlier run that was interrupted after its last restart: nothing else would. First come
// the waits that the run didn't finish.
func ReleaseInterruptedLease(ctx context.Context, env *step.Env, purpose Purpose, waits ...func(context.Context, *step.Env) error) error {
	mine, _, found := interruptedLease(ctx, env, purpose)
	if !found {
		return ctx.Err() // without the API, the next run looks again
	}
	for _, wait := range waits {
		if err := wait(ctx, env); err != nil {
			return err // the next run waits again
		}
	}
	return mine.Release(ctx, env, nil)
}

// KeepOnFailure makes a failed run keep the Lease: from now on, something on this node may be down.
func (t Lease) KeepOnFailure() {
	if t.keepOnFailure != nil {
		*t.keepOnFailure = true
	}
}

func (t Lease) keepsOnFailure() bool { return t.keepOnFailure != nil && *t.keepOnFailure }

// Cancel ends a turn in which nothing was stopped, and returns err. If an earlier run may have stopped something, the node keeps
// the Lease, with that run's purpose.
func (t Lease) Cancel(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReachTimeout)
	defer cancel()
	if cancelled := t.cancel(ctx); err == nil {
		err = cancelled
	}
	return err
}

// Release ends a turn. failed is the workflow's error, or nil; Finish returns it, or else its own. Other control planes may go on
// after a success, or a failure that has left this node as it was.
func (t Lease) Release(ctx context.Context, env *step.Env, failed error) error {
	var putBack *RolledBackError
	if failed != nil && (!errors.As(failed, &putBack) || putBack.Partly) {
		if t.keepsOnFailure() {
			t.keep()
			return failed
		}
		return t.Cancel(ctx, failed)
	}
	err := awaitReady(ctx, env, t.Held || t.purpose.changesVersion())
	switch {
	case err == nil:
		err = t.release(ctx)
	case t.keepsOnFailure():
		t.keep()
	default:
		return t.Cancel(ctx, err)
	}
	if failed != nil && err != nil {
		return errors.WithMessagef(failed, "this control plane keeps the Lease %s, because it is not ready again (%v)", upgradeLease, err)
	}
	return cmp.Or(failed, err)
}

// keep leaves the Lease with this node, as a run that's over: nobody renews it any more.
func (t Lease) keep() {
	if t.stop != nil {
		t.stop()
	}
}

// awaitReady waits until the other control planes may go on: this host's API server is ready, its member of etcd has a vote and the
// leader's commits, and each component is healthy. withAPI is false if the API couldn't be asked before, as without admin.conf.
func awaitReady(ctx context.Context, env *step.Env, withAPI bool) error {
	limit := &env.Config.Timeouts.UpgradeManifests
	const failure = "this control plane is not ready again"
	return env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
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

// caughtUp waits until this node's member of etcd has a vote and the leader's commits.
func caughtUp(ctx context.Context, env *step.Env) error {
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found {
		return errors.New("the static Pod of etcd does not say which member it is")
	}
	own, _ := OwnIdentity(env)
	return env.Etcd.CaughtUp(ctx, own)
}
