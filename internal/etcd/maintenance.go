// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/parallel"
)

func (r *Real) HashKV(ctx context.Context, revision int64) ([]KeysHash, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	members, err := r.anyView(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "list the members of etcd")
	}
	return parallel.Map(members, 0, func(m Member) KeysHash { return r.hashOf(ctx, m, revision) }), nil
}

func (r *Real) hashOf(ctx context.Context, m Member, revision int64) KeysHash {
	h := KeysHash{Member: m}
	on, err := r.reach(ctx, m)
	defer on.close()
	if err != nil {
		h.Err = err
		return h
	}
	answer, err := on.client.HashKV(ctx, on.client.Endpoints()[0], revision)
	if err != nil {
		h.Err = err
		return h
	}
	h.Hash, h.Compacted = answer.Hash, answer.CompactRevision
	return h
}

// Comparable reports whether all hashes are since the same compaction: members compact on their own, one after the other.
func Comparable(all []KeysHash) bool {
	hashes := slices.DeleteFunc(slices.Clone(all), func(h KeysHash) bool { return h.Err != nil })
	return !slices.ContainsFunc(hashes, func(h KeysHash) bool { return h.Compacted != hashes[0].Compacted })
}

// Differ reports whether two members have different keys, as far as their hashes are comparable.
func Differ(all []KeysHash) (differ bool) {
	first := map[int64]uint32{}
	for _, h := range all {
		if h.Err != nil {
			continue
		}
		if before, known := first[h.Compacted]; known && before != h.Hash {
			return true
		}
		first[h.Compacted] = h.Hash
	}
	return false
}

// CommonRevision returns the newest revision that all answering members have; 0 if none answers.
func CommonRevision(all []Health) (revision int64) {
	for _, m := range all {
		if m.Status.Revision > 0 && (revision == 0 || m.Status.Revision < revision) {
			revision = m.Status.Revision
		}
	}
	return revision
}

func (r *Real) Compact(ctx context.Context, revision int64) error {
	return errors.WithMessagef(r.compact(ctx, revision), "compact etcd up to revision %d", revision)
}

// compact asks each voter, because a member answers once its own space is free. All but the first find the compaction begun, and wait
// for theirs to end. That needs more time than a try.
func (r *Real) compact(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	members, err := r.anyView(ctx)
	if err != nil {
		return errors.WithMessage(err, "list the members of etcd")
	}
	voters := slices.DeleteFunc(members, func(m Member) bool { return m.Learner })
	for _, err := range parallel.Map(voters, 0, func(m Member) error { return r.compactOn(ctx, m, revision) }) {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Real) compactOn(ctx context.Context, m Member, revision int64) error {
	on, err := r.reach(ctx, m)
	defer on.close()
	if err == nil {
		_, err = on.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	}
	if is(err, rpctypes.ErrGRPCCompacted) {
		err = nil
	}
	return errors.WithMessage(err, m.Label())
}

// slowDisk is how many bytes of a database are rewritten each second, at least.
const slowDisk = 4 << 20

func (r *Real) Defragment(ctx context.Context, peerURL string) error {
	reaching, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	on, err := r.memberAt(reaching, peerURL)
	defer on.close()
	if err == nil {
		limit := r.options.Timeout + time.Duration(on.status.GetDbSize()/slowDisk)*time.Second
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err = on.client.Defragment(limited, on.client.Endpoints()[0])
	}
	return errors.WithMessagef(err, "defragment etcd's member at %s", peerURL)
}

func (r *Real) Disarm(ctx context.Context) error {
	err := r.try(ctx, func(ctx context.Context, c *clientv3.Client, _ []Member) error {
		raised, err := c.AlarmList(ctx)
		if err != nil {
			return err
		}
		for _, alarm := range raised.Alarms {
			if alarm.GetAlarm() != pb.AlarmType_NOSPACE {
				continue
			}
			if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.WithMessage(err, "disarm etcd's alarms NOSPACE")
}
