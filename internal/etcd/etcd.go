// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd reads and changes the membership of an etcd cluster. New
// returns the real thing, NewPlan one that only records.
package etcd

import (
	"context"
	"slices"
)

// Etcd is the membership of the cluster that this node's etcd belongs to, or
// will join. A member is identified by its peer URL, such as
// https://192.0.2.1:2380: it has an ID from the start, but a name only once it
// has run. Each method retries errors that can pass (no leader, another change
// under way, connection lost) until its time is over, and reads the membership
// before each try: a change whose answer was lost is not made twice.
type Etcd interface {
	// Members lists the members, sorted by peer URL.
	Members(ctx context.Context) ([]Member, error)
	// Join makes sure that there is a member at peerURL. A new one is added as
	// a learner, which has no vote and so cannot cost the others their quorum:
	// https://etcd.io/docs/v3.6/learning/design-learner/. Etcd takes one
	// learner at a time; Join waits for another that is being added. added
	// reports whether this call added the member.
	Join(ctx context.Context, name, peerURL string) (members []Member, added bool, err error)
	// Promote gives the learner at peerURL its vote as soon as it has caught
	// up. A member that has a vote is left alone.
	Promote(ctx context.Context, peerURL string) error
	// Leave removes the member at peerURL. The last member is left alone:
	// without it there is no cluster. RefusesRemoval recognizes the error of a
	// cluster that would lose its quorum.
	Leave(ctx context.Context, peerURL string) (removed bool, err error)
	// Health asks each member by itself, all side by side, and answers within
	// seconds, sorted by peer URL. It changes nothing and needs no quorum: any
	// member can list the others. It fails only if no member answers.
	Health(ctx context.Context) ([]Health, error)
}

// Health is the health of one member.
type Health struct {
	Member
	// Answers reports whether an etcd answered for it at all.
	Answers bool
	// Err is why it does not work: it cannot be reached, or has no leader. It is
	// nil for a member that follows a leader or is one.
	Err error
}

// QuorumWithout reports whether the healthy voters, not counting the one at
// peerURL, are a quorum of the cluster without that one.
func QuorumWithout(all []Health, peerURL string) bool {
	voters, working := 0, 0
	for _, m := range all {
		if m.Learner || m.PeerURL == peerURL {
			continue
		}
		voters++
		if m.Err == nil {
			working++
		}
	}
	return working > voters/2
}

// Member is one member of the cluster.
type Member struct {
	ID uint64
	// Cluster is the ID of the cluster that it is a member of.
	Cluster uint64
	// Name is empty for a member that has not started yet.
	Name       string
	PeerURL    string
	ClientURLs []string
	// Learner has no vote.
	Learner bool
}

func byPeer(members []Member, peerURL string) *Member {
	i := slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
	if i < 0 {
		return nil
	}
	return &members[i]
}
