// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
)

func (r *Real) MoveLeader(ctx context.Context, peerURL string) (moved bool, err error) {
	err = r.try(ctx, func(ctx context.Context, _ *clientv3.Client, now []Member) error {
		m := byPeer(now, peerURL)
		if m == nil {
			return nil
		}
		successor := successorOf(r.askEach(ctx, now), m.ID)
		if successor == nil || successor.Status.Leader != m.ID {
			return nil
		}
		on, err := r.reach(ctx, *m)
		defer on.close()
		if err != nil {
			return err
		}
		moved = true // even if the answer is lost
		_, err = on.client.MoveLeader(ctx, successor.ID)
		return err
	})
	return moved && err == nil, errors.WithMessagef(err, "make another member than %s the leader of etcd", peerURL)
}

// successorOf returns the best healthy voter to take over from a member: one of the newest version, because it needn't stop again
// in the same upgrade, and among those, the voter furthest ahead.
func successorOf(all []Health, id uint64) *Health {
	var best *Health
	for i, h := range all {
		if h.Err == nil && !h.Learner && h.ID != id && (best == nil || succeedsBetter(h.Status, best.Status)) {
			best = &all[i]
		}
	}
	return best
}

func succeedsBetter(a, b Status) bool {
	if a.Version != b.Version {
		va, err := version.ParseSemantic(a.Version)
		vb, otherErr := version.ParseSemantic(b.Version)
		if err == nil && otherErr == nil {
			return vb.LessThan(va)
		}
	}
	return a.Applied > b.Applied
}

func (r *Real) CaughtUp(ctx context.Context, peerURL string) error {
	var goal uint64
	err := r.try(ctx, func(ctx context.Context, _ *clientv3.Client, now []Member) error {
		all := r.askEach(ctx, now)
		if leader := slices.IndexFunc(all, Health.Leads); goal == 0 && leader >= 0 {
			goal = all[leader].Status.Committed
		}
		i := slices.IndexFunc(all, func(h Health) bool { return h.PeerURL == peerURL })
		switch {
		case i < 0:
			return errors.New("it is not a member: something else has removed it")
		case all[i].Err != nil:
			return passing(all[i].Err)
		case all[i].Learner:
			return passing(errors.New("it is still a learner, which has no vote"))
		case goal == 0:
			return passing(errors.New("the leader does not answer"))
		case all[i].Status.Applied < goal:
			return passing(errors.Errorf("it has applied %d of the leader's %d entries", all[i].Status.Applied, goal))
		}
		return nil
	})
	return errors.WithMessagef(err, "wait for the member of etcd at %s", peerURL)
}
