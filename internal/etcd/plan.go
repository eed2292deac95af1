// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"io"
	"slices"

	"github.com/pkg/errors"
)

// Verb is the kind of an Action.
type Verb string

// The verbs, as a plan shows them.
const (
	Add     Verb = "add etcd learner"
	Promote Verb = "promote etcd member"
	Remove  Verb = "remove etcd member"
	Move    Verb = "move etcd member"
	Compact Verb = "compact etcd"
	Rewrite Verb = "defragment etcd member"
	Disarm  Verb = "disarm etcd alarms"
)

// Action is a change left out by a dry run.
type Action struct {
	Verb    Verb
	Name    string // of a member to add
	PeerURL string // empty for all members; the new one of a member to move
}

// Plan records changes instead of making them. It knows only the members given to NewPlan, unless it can ask a live etcd.
type Plan struct {
	record  func(Action)
	members []Member
	live    Etcd
	// left and rewritten have the peer URLs of removed and of defragmented members.
	left, rewritten []string
	disarmed        bool
}

var _ Etcd = (*Plan)(nil)

// NewPlan returns an Etcd with these voters, if any are known. It passes each change to record.
func NewPlan(record func(Action), members ...Member) *Plan {
	return &Plan{record: record, members: members}
}

// NewLivePlan returns an Etcd that reads from live, and passes each change to record.
func NewLivePlan(record func(Action), live Etcd) *Plan { return &Plan{record: record, live: live} }

func (p *Plan) Members(ctx context.Context) ([]Member, error) {
	if p.live == nil {
		return p.members, nil
	}
	members, err := p.live.Members(ctx)
	return slices.DeleteFunc(members, func(m Member) bool { return m.At(p.left...) }), err
}

func (p *Plan) knows(peerURL string) bool {
	return slices.ContainsFunc(p.members, func(m Member) bool { return m.At(peerURL) })
}

// Join returns a placeholder for the existing members.
func (p *Plan) Join(_ context.Context, name, peerURL string) ([]Member, bool, error) {
	if p.knows(peerURL) {
		return p.members, false, nil
	}
	p.record(Action{Add, name, peerURL})
	return []Member{
		{Name: "<each member then>", PeerURL: "<its peer URL>"},
		{Name: name, PeerURL: peerURL, Learner: true},
	}, true, nil
}

func (p *Plan) Promote(_ context.Context, peerURL string) error {
	if !p.knows(peerURL) {
		p.record(Action{Verb: Promote, PeerURL: peerURL})
	}
	return nil
}

func (p *Plan) Leave(_ context.Context, peerURL string) (bool, error) {
	p.record(Action{Verb: Remove, PeerURL: peerURL})
	p.left = append(p.left, peerURL)
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m Member) bool { return m.At(peerURL) })
	return true, nil
}

// Move assumes that the member hasn't been moved, unless a live etcd says so.
func (p *Plan) Move(ctx context.Context, _ uint64, _ []string, to string) (bool, error) {
	if now, err := p.Members(ctx); err == nil && byPeer(now, to) != nil {
		return false, nil
	}
	p.record(Action{Verb: Move, PeerURL: to})
	return true, nil
}

// Health asks nobody but a live etcd, and otherwise assumes that all members are healthy.
func (p *Plan) Health(ctx context.Context) (all []Health, err error) {
	if p.live != nil {
		all, err = p.live.Health(ctx)
		for i := range all {
			if p.disarmed {
				all[i].Status.Alarms = slices.DeleteFunc(slices.Clone(all[i].Status.Alarms), func(a Alarm) bool { return a.Kind == "NOSPACE" })
			}
			if all[i].At(p.rewritten...) {
				all[i].Status.Size, all[i].Status.InUse = 0, 0 // not known in advance
			}
		}
		return slices.DeleteFunc(all, func(m Health) bool { return m.At(p.left...) }), err
	}
	for _, m := range p.members {
		all = append(all, Health{Member: m})
	}
	return all, nil
}

// HealthOf asks nobody but a live etcd's members, and otherwise assumes that all are healthy.
func (p *Plan) HealthOf(ctx context.Context, members []Member) (all []Health) {
	if p.live != nil {
		return p.live.HealthOf(ctx, members)
	}
	for _, m := range members {
		all = append(all, Health{Member: m})
	}
	return all
}

// Peers asks nobody but a live etcd's members.
func (p *Plan) Peers(ctx context.Context, urls []string) []Peer {
	if p.live != nil {
		return p.live.Peers(ctx, urls)
	}
	var all []Peer
	for _, url := range urls {
		all = append(all, Peer{URL: url, Err: ErrNotAsked})
	}
	return all
}

// MoveLeader records nothing: a plan doesn't know the leader, and a change of leader has no lasting effect.
func (p *Plan) MoveLeader(context.Context, Identity) (bool, error) { return false, nil }

// CaughtUp assumes that the wait is over.
func (p *Plan) CaughtUp(context.Context, Identity) error { return nil }

// Withdraw isn't recorded: the owner soon writes the key again.
func (p *Plan) Withdraw(context.Context, string) (bool, error) { return false, nil }

// Has doesn't ask, and can't assume the key is missing.
func (p *Plan) Has(context.Context, string) (bool, error) {
	return false, errors.New("a plan does not ask etcd")
}

// Values doesn't ask, and can't assume that there are none.
func (p *Plan) Values(context.Context, string, func(string, []byte)) error {
	return errors.New("a plan does not ask etcd")
}

// Snapshot records nothing: the host writes the snapshot's file, and records that.
func (p *Plan) Snapshot(context.Context, string, io.Writer) (SnapshotInfo, error) {
	return SnapshotInfo{}, nil
}

// HashKV asks nobody: it would keep the members busy.
func (p *Plan) HashKV(context.Context, int64) ([]KeysHash, error) { return nil, ErrNotAsked }

func (p *Plan) Compact(context.Context, int64) error {
	p.record(Action{Verb: Compact})
	return nil
}

func (p *Plan) Defragment(_ context.Context, peerURL string) error {
	p.record(Action{Verb: Rewrite, PeerURL: peerURL})
	p.rewritten = append(p.rewritten, peerURL)
	return nil
}

func (p *Plan) Disarm(context.Context) error {
	p.record(Action{Verb: Disarm})
	p.disarmed = true
	return nil
}
