// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd reads and changes the membership of an etcd cluster. New
// returns the real thing, NewPlan one that only records.
package etcd

import (
	"context"
	"io"
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
	// MoveLeader makes sure that the member at peerURL does not lead the
	// cluster, so that it can stop without an election. The healthy voter that
	// has applied most takes over. If there is none, as with a single member,
	// and if peerURL is not a member or does not lead, nothing happens.
	MoveLeader(ctx context.Context, peerURL string) (moved bool, err error)
	// CaughtUp waits until the member at peerURL is a voter, follows a leader or
	// leads, and has applied all that the leader had committed at the time of
	// the call.
	CaughtUp(ctx context.Context, peerURL string) error
	// Withdraw deletes a key that its owner keeps writing, right after the owner's
	// next write, so that it stays away until the one after that. withdrawn is
	// false if there is no such key, or if it goes away by itself.
	Withdraw(ctx context.Context, key string) (withdrawn bool, err error)
	// Has reports whether there is a key.
	Has(ctx context.Context, key string) (bool, error)
	// Snapshot writes a snapshot of the database of the member at peerURL to w,
	// with the checksum at its end that etcd adds, and returns its hash, size and
	// version; VerifySnapshot finds the rest. It needs no quorum. The whole takes
	// as long as the database is large; only a member that sends nothing for the
	// timeout of the other methods ends it. What w has got is no snapshot if
	// there is an error: a broken stream is not tried again.
	Snapshot(ctx context.Context, peerURL string, w io.Writer) (SnapshotInfo, error)
}

// Health is the health of one member.
type Health struct {
	Member
	// Answers reports whether an etcd answered for it at all.
	Answers bool
	// Err is why it does not work: it cannot be reached, or has no leader. It is
	// nil for a member that follows a leader or is one.
	Err error
	// Status is what it says of itself; empty unless it answers.
	Status Status
}

// Status is what a member says of itself.
type Status struct {
	// Version is that of the program, such as 3.6.8. Storage is the oldest
	// version that its data is for, such as 3.6.0; empty before 3.6 and for some
	// seconds after the cluster was created.
	Version, Storage string
	// Leader is the ID of the member that it follows, its own if it leads, 0 for
	// none.
	Leader uint64
	// Committed and Applied are the last entries of raft's log that it knows to
	// be committed, and that it has applied. Revision is that of its keys.
	Committed, Applied uint64
	Revision           int64
	// Size is that of its database file and InUse of what the file holds, in
	// bytes. Quota is the most that Size may be; 0 if it does not say (before 3.6).
	Size, InUse, Quota int64
	// Alarms are the alarms of the whole cluster, as far as this member knows.
	Alarms []Alarm
}

// Alarm is what a member has raised an alarm for. While there is one, etcd
// refuses writes (NOSPACE) or everything (CORRUPT), on all members.
type Alarm struct {
	Member uint64 // its ID
	Kind   string // NOSPACE, CORRUPT
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

// Leads reports whether the member is the leader.
func (h Health) Leads() bool { return h.Answers && h.Status.Leader == h.ID }

func byPeer(members []Member, peerURL string) *Member {
	i := slices.IndexFunc(members, func(m Member) bool { return m.PeerURL == peerURL })
	if i < 0 {
		return nil
	}
	return &members[i]
}
