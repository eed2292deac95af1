// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Options say how to reach the members.
type Options struct {
	// Endpoints lists client URLs of members, https://192.0.2.1:2379. Not all
	// of them need to answer.
	Endpoints func(ctx context.Context) ([]string, error)
	// CA, Cert and Key are paths of the CA of etcd's members, and of the
	// client certificate that they know an administrator by.
	CA, Cert, Key string
	// ReadFile reads them when they are first needed.
	ReadFile func(path string) ([]byte, error)
	// Timeout bounds each method (the configuration's timeouts.etcdAPICall).
	Timeout time.Duration
}

// Real is the membership of a real cluster. It connects when it is used.
type Real struct{ options Options }

var _ Etcd = (*Real)(nil)

// New returns the cluster that o leads to. It reads and sends nothing yet.
func New(o Options) *Real { return &Real{options: o} }

// Members implements Etcd.
func (r *Real) Members(ctx context.Context) (members []Member, err error) {
	err = r.try(ctx, func(_ context.Context, _ client, now []Member) (bool, error) {
		members = now
		return true, nil
	})
	return members, errors.WithMessage(err, "list the members of etcd")
}

// Join implements Etcd.
func (r *Real) Join(ctx context.Context, name, peerURL string) (members []Member, added bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c client, now []Member) (bool, error) {
		if m := byPeer(now, peerURL); m != nil {
			m.Name = cmp.Or(m.Name, name)
			members = now
			return true, nameFault(*m, name)
		}
		for _, m := range now {
			if m.Name == name {
				return true, errors.Errorf("it has a member %q already, at %s: that node must be reset, or its member %x removed, before another node takes its name", name, m.PeerURL, m.ID)
			}
		}
		err := c.memberAdd(ctx, peerURL)
		added = true // or not: the next look tells
		return false, learnersInTheWay(err, now)
	})
	return members, added && members != nil, errors.WithMessagef(err, "add %s to etcd", peerURL)
}

func nameFault(m Member, name string) error {
	if m.Name == name {
		return nil
	}
	return errors.Errorf("the member at %s is called %q, not %q: join with that name (--node-name), or remove member %x first",
		m.PeerURL, m.Name, name, m.ID)
}

// learnersInTheWay names the learner that etcd waits for before it takes
// another.
func learnersInTheWay(err error, now []Member) error {
	if !is(err, rpctypes.ErrGRPCTooManyLearners) {
		return err
	}
	for _, m := range now {
		if m.Learner {
			return passing(errors.Errorf("member %x at %s is being added and not promoted yet; if that node is gone for good, remove the member", m.ID, m.PeerURL))
		}
	}
	return passing(err)
}

// Promote implements Etcd.
func (r *Real) Promote(ctx context.Context, peerURL string) error {
	err := r.try(ctx, func(ctx context.Context, c client, now []Member) (bool, error) {
		m := byPeer(now, peerURL)
		switch {
		case m == nil:
			return true, errors.New("it is no member: something else has removed it; join again")
		case !m.Learner:
			return true, nil
		}
		err := c.memberPromote(ctx, m.ID)
		return err == nil, err
	})
	return errors.WithMessagef(err, "give %s its vote in etcd", peerURL)
}

// Leave implements Etcd.
func (r *Real) Leave(ctx context.Context, peerURL string) (removed bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c client, now []Member) (bool, error) {
		m := byPeer(now, peerURL)
		if m == nil || len(now) == 1 {
			return true, nil
		}
		err := c.memberRemove(ctx, m.ID)
		removed = true
		return err == nil, err
	})
	return removed && err == nil, errors.WithMessagef(err, "remove %s from etcd", peerURL)
}

// try calls op with the membership as it is, until op is done, fails for good,
// or the time is over; then the error is the last one.
func (r *Real) try(ctx context.Context, op func(ctx context.Context, c client, now []Member) (done bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.Timeout, fmt.Errorf("gave up after %s", r.options.Timeout))
	defer cancel()
	conns, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer conns.close()
	last := errors.New("no member has answered")
	for delay := firstDelay; ; delay = min(2*delay, slowestDelay) {
		done, err := conns.each(ctx, func(ctx context.Context, c client) (bool, error) {
			now, err := list(ctx, c)
			if err != nil {
				return false, err
			}
			return op(ctx, c, now)
		})
		switch {
		case wrongCertificate(err):
			return fmt.Errorf("%w; `slipway certs check-expiration` here and on the other control planes shows certificates that have expired", err)
		case done || err != nil && !passes(err):
			return err
		case err != nil && ctx.Err() == nil:
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; %w", last, context.Cause(ctx))
		case <-time.After(delay):
		}
	}
}

// list asks a member that has heard from the leader, so that it tells nothing
// outdated.
func list(ctx context.Context, c client) ([]Member, error) {
	members, err := c.memberList(ctx, true)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.PeerURL, b.PeerURL) })
	return members, nil
}
