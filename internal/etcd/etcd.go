// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd is what a phase may do to the membership of an etcd cluster.
// New returns the real thing, NewPlan one that only records.
package etcd

import (
	"context"
	"slices"
)

// Etcd is the membership of the cluster that this node's etcd belongs to, or
// shall belong to. A member is known by its peer URL, such as
// https://192.0.2.1:2380: it has an ID from the start, but a name only once it
// has run. Each method retries what can pass (no leader, another change under
// way, connection lost) until its time is over, and reads the membership again
// before each try: a change whose answer was lost is not made twice.
type Etcd interface {
	// Members lists the members, sorted by peer URL.
	Members(ctx context.Context) ([]Member, error)
	// Health asks each member by itself, once. It needs no quorum.
	Health(ctx context.Context) ([]Health, error)
	// Join makes sure that there is a member at peerURL. A new one is added as
	// a learner, which has no vote and so cannot cost the others their quorum:
	// https://etcd.io/docs/v3.6/learning/design-learner/. Etcd takes one
	// learner at a time; Join waits for another that is being added. added
	// tells whether this call has added the member.
	Join(ctx context.Context, name, peerURL string) (members []Member, added bool, err error)
	// Promote gives the learner at peerURL its vote as soon as it has caught
	// up. One that has it already is left alone.
	Promote(ctx context.Context, peerURL string) error
	// Leave removes the member at peerURL. The last member is left alone:
	// without it there is no cluster.
	Leave(ctx context.Context, peerURL string) (removed bool, err error)
}

// Member is one member of the cluster.
type Member struct {
	ID uint64
	// Name is empty for a member that has not started yet.
	Name       string
	PeerURL    string
	ClientURLs []string
	// Learner has no vote.
	Learner bool
}

// Health is how a member does.
type Health struct {
	Member
	// Fault is why the member cannot be reached, or has no contact to a leader
	// that a quorum follows; nil if it is healthy.
	Fault error
}

func byPeer(members []Member, peerURL string) *Member {
	i := slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
	if i < 0 {
		return nil
	}
	return &members[i]
}
