// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd is this node's access to etcd. Start at the interface Etcd: members, health, the leader and snapshots, with Real
// (New) for a run and Plan (NewPlan) for a dry run. Concerns turns the members' health into findings, such as a database near its
// quota; `etcd status` and internal/diagnose share them.
//
// The package also works on files without a server: VerifySnapshot and Restore on snapshots, ReadLog on a member's write-ahead
// log, and ReadSurvivor on the data of a stopped member that continues alone (`etcd recover`).
package etcd

import (
	"cmp"
	"context"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Etcd is the membership of the cluster this node's etcd belongs to, or will join. A peer URL, such as https://192.0.2.1:2380,
// identifies a member: a member has an ID from the start, but a name only once it has run. If it has several, each of them does. Each
// method retries errors that can pass (no leader, another change under way, connection lost) until its time is over, and reads the
// membership before each try: a change whose answer was lost isn't made twice.
type Etcd interface {
	// Members lists the members, sorted by peer URL.
	Members(ctx context.Context) ([]Member, error)
	// Join makes sure there's a member at peerURL. It adds members as learners, which have no vote and so can't cost the others
	// their quorum: https://etcd.io/docs/v3.6/learning/design-learner/. Etcd accepts one learner at a time; Join waits while
	// another is being added. added reports whether this call added the member.
	Join(ctx context.Context, name, peerURL string) (members []Member, added bool, err error)
	// Promote gives the learner at peerURL its vote as soon as it has caught up. It leaves voters alone.
	Promote(ctx context.Context, peerURL string) error
	// Leave removes the member at peerURL, unless it's the last: without it there's no cluster. RefusesRemoval recognizes the
	// error if the cluster would lose its quorum.
	Leave(ctx context.Context, peerURL string) (removed bool, err error)
	// Move gives the member at one of the peer URLs in from another one, whether anybody answers there or not. If there's a member
	// at to, and none at the others, it has been moved. It's the member with this ID, unless that's 0, for unknown: another host may
	// have one of the addresses by now.
	Move(ctx context.Context, id uint64, from []string, to string) (moved bool, err error)
	// Health asks each member itself, all in parallel, and answers within seconds, sorted by peer URL. It changes nothing and
	// needs no quorum: any member can list the others. It fails only if no member answers.
	Health(ctx context.Context) ([]Health, error)
	// HealthOf asks each of these members itself, as Health does, for when no member lists them to its clients.
	HealthOf(ctx context.Context, members []Member) []Health
	// Peers asks the etcds at these peer URLs for the members, all in parallel, and answers within seconds, in the order of urls.
	// Unlike a client, a peer gets an answer even from a member that has no leader yet.
	Peers(ctx context.Context, urls []string) []Peer
	// MoveLeader makes sure a member doesn't lead the cluster, so it can stop without an election. The healthy voter
	// furthest ahead takes over. Nothing happens if there's no such voter, as with a single member, or if the member doesn't exist or
	// doesn't lead.
	MoveLeader(ctx context.Context, id Identity) (moved bool, err error)
	// CaughtUp waits until a member is a voter, leads or follows a leader, and has applied everything the leader had committed at the
	// time of the call.
	CaughtUp(ctx context.Context, id Identity) error
	// Withdraw deletes a key that its owner keeps writing, right after the owner's next write, so that it stays away until the
	// write after that. withdrawn is false if the key doesn't exist, or goes away by itself.
	Withdraw(ctx context.Context, key string) (withdrawn bool, err error)
	Has(ctx context.Context, key string) (bool, error)
	// Values passes each key that begins with prefix, and its value, to each, as of one revision. It takes as long as reading them
	// does: only a page that doesn't arrive within the other methods' timeout ends it. After an error, each may have seen some.
	Values(ctx context.Context, prefix string, each func(key string, value []byte)) error
	// Snapshot writes a snapshot of the database of the member at peerURL to w, including etcd's checksum at the end, and returns
	// its hash, size and version; VerifySnapshot finds the rest. It needs no quorum. It may take as long as the database's size
	// requires; only a member that sends nothing for the other methods' timeout ends it. After an error, the data in w isn't a
	// snapshot: a broken stream isn't tried again.
	Snapshot(ctx context.Context, peerURL string, w io.Writer) (SnapshotInfo, error)
	Maintenance
}

// Maintenance keeps the members' databases small and equal.
type Maintenance interface {
	// HashKV asks each member, all in parallel, for the hash of all its keys up to a revision, sorted by peer URL. It takes as long
	// as reading the whole database.
	HashKV(ctx context.Context, revision int64) ([]KeysHash, error)
	// Compact discards the history of all keys up to a revision. Each voter's space is free once this returns, but its file keeps
	// its size. All of them have to answer. Clients that read or watch from an older revision have to start over.
	Compact(ctx context.Context, revision int64) error
	// Defragment rewrites the database of the member at peerURL, without its free space. The member serves nothing meanwhile. It
	// takes as long as the database's size requires, on a slow disk.
	Defragment(ctx context.Context, peerURL string) error
	// Disarm ends all alarms of the kind NOSPACE. A database that is still at its quota raises it again.
	Disarm(ctx context.Context) error
}

// KeysHash is a member's answer to HashKV.
type KeysHash struct {
	Member
	Err  error
	Hash uint32
	// Compacted is the revision of the member's last compaction: a hash covers nothing older.
	Compacted int64
}

// Health is a member's state.
type Health struct {
	Member
	// Answers reports whether any etcd answered at its address.
	Answers bool
	// ServedCluster is the ID of the cluster of the etcd that answered; 0 if it doesn't say.
	ServedCluster uint64
	// Err is why it doesn't work: it can't be reached, or has no leader. It's nil for a leader or a follower.
	Err    error
	Status Status // empty unless the member answers
}

type Status struct {
	Version string // the program's, such as 3.6.8
	Leader  uint64 // the ID of the member it follows, its own if it leads, 0 for none
	// Committed is the last entry of raft's log known to be committed, Applied the last entry applied, Revision the keys' revision.
	Committed, Applied uint64
	Revision           int64
	// Size is the size of its database file in bytes, and InUse the part of it that holds data. Quota is the limit of Size; 0 if it
	// doesn't say (before 3.6).
	Size, InUse, Quota int64
	Alarms             []Alarm // the whole cluster's alarms, as far as this member knows
}

// Alarm is raised by a member. While there's one, all members refuse writes (NOSPACE) or everything (CORRUPT).
type Alarm struct {
	Member uint64 // its ID
	Kind   string // NOSPACE, CORRUPT
}

// QuorumWithout reports whether the healthy voters but the member at peerURL would be a quorum of the cluster without it.
func QuorumWithout(all []Health, peerURL string) bool {
	voters, working := CountVoters(slices.DeleteFunc(slices.Clone(all), func(m Health) bool { return m.At(peerURL) }))
	return working >= Majority(voters)
}

// Majority is how many of a cluster's voters have to work for it to have a quorum.
func Majority(voters int) int { return voters/2 + 1 }

// CountVoters counts the voters among members, and those of them that work.
func CountVoters(all []Health) (voters, working int) {
	for _, m := range all {
		if m.Learner {
			continue
		}
		voters++
		if m.Err == nil {
			working++
		}
	}
	return voters, working
}

// MembersOf returns the members without their health.
func MembersOf(all []Health) []Member {
	members := make([]Member, 0, len(all))
	for _, h := range all {
		members = append(members, h.Member)
	}
	return members
}

// Label is the member's name, or its peer URL if it has no name yet.
func (m Member) Label() string { return cmp.Or(m.Name, m.PeerURL) }

// Member is a member of an etcd cluster.
type Member struct {
	ID      uint64
	Cluster uint64 // the ID of its cluster
	Name    string // empty for a member that hasn't started yet
	// PeerURL is the first of its peer URLs in etcd's order, and MorePeerURLs has the others, if there are any.
	PeerURL      string
	MorePeerURLs []string
	ClientURLs   []string
	// Learner has no vote.
	Learner bool
}

// PeerURLs are all the URLs at which other members reach the member.
func (m Member) PeerURLs() []string { return append([]string{m.PeerURL}, m.MorePeerURLs...) }

// At reports whether one of these is a peer URL of the member.
func (m Member) At(peerURLs ...string) bool {
	return slices.ContainsFunc(m.PeerURLs(), func(url string) bool { return slices.Contains(peerURLs, url) })
}

// OnlyLocal reports whether no other host can reach the member: its peer URLs are loopback addresses. It works as long as it's alone.
func (m Member) OnlyLocal() bool {
	return !slices.ContainsFunc(m.PeerURLs(), func(text string) bool {
		u, err := url.Parse(text)
		if err != nil {
			return true
		}
		ip, err := netip.ParseAddr(u.Hostname())
		return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
	})
}

// Identity identifies a host's own member. After `etcdctl member update`, or a restore by hand without the cluster's
// flags, etcd has other peer URLs for the member than its flags.
type Identity struct {
	// PeerURLs and Name are in its flags. etcd publishes the name at each start.
	PeerURLs []string
	Name     string
	// Data has the IDs in its log; zero if they're unknown.
	Data Data
}

// At identifies a member by its peer URL alone.
func At(peerURL string) Identity { return Identity{PeerURLs: []string{peerURL}} }

// Find returns the member's position among members; -1 if it's none of them. Its IDs decide, and otherwise its peer URLs. Members of
// separate clusters, or on copies of a disk, can have the same IDs, so another member's name or URL makes the IDs void.
func (id Identity) Find(members []Member) int {
	i := slices.IndexFunc(members, func(m Member) bool {
		same := id.Data.Member != 0 && m.ID == id.Data.Member && (m.Cluster == 0 || m.Cluster == id.Data.Cluster)
		return same && (m.Name == "" || m.Name == id.Name || m.At(id.PeerURLs...))
	})
	if i < 0 {
		i = slices.IndexFunc(members, func(m Member) bool { return m.At(id.PeerURLs...) })
	}
	return i
}

// String names the member in messages.
func (id Identity) String() string { return strings.Join(id.PeerURLs, ", ") }

// Leads reports whether the member says that it's the leader.
func (h Health) Leads() bool { return h.Answers && h.Status.Leader == h.ID }

// Foreign reports whether an etcd of another cluster than the one with this ID answered. An ID of 0 is unknown.
func (h Health) Foreign(cluster uint64) bool {
	return cluster != 0 && h.ServedCluster != 0 && h.ServedCluster != cluster
}

func byPeer(members []Member, peerURL string) *Member {
	i := slices.IndexFunc(members, func(m Member) bool { return m.At(peerURL) })
	if i < 0 {
		return nil
	}
	return &members[i]
}
