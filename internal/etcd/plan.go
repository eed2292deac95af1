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
)

// Action is a change left out by a dry run.
type Action struct {
	Verb    Verb
	Name    string // of a member to add
	PeerURL string
}

// Plan records changes instead of making them. It knows only the members given to NewPlan.
type Plan struct {
	record  func(Action)
	members []Member
}

var _ Etcd = (*Plan)(nil)

// NewPlan returns an Etcd with these voters, if any are known. It passes each change to record.
func NewPlan(record func(Action), members ...Member) *Plan { return &Plan{record, members} }

func (p *Plan) Members(context.Context) ([]Member, error) { return p.members, nil }

func (p *Plan) knows(peerURL string) bool {
	return slices.ContainsFunc(p.members, func(m Member) bool { return m.PeerURL == peerURL })
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
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m Member) bool { return m.PeerURL == peerURL })
	return true, nil
}

// Health asks nobody, and assumes they're all healthy.
func (p *Plan) Health(context.Context) ([]Health, error) {
	var all []Health
	for _, m := range p.members {
		all = append(all, Health{Member: m})
	}
	return all, nil
}

// Peers asks nobody.
func (p *Plan) Peers(_ context.Context, urls []string) []Peer {
	var all []Peer
	for _, url := range urls {
		all = append(all, Peer{URL: url, Err: ErrNotAsked})
	}
	return all
}

// MoveLeader records nothing: a plan doesn't know the leader, and a change of leader has no lasting effect.
func (p *Plan) MoveLeader(context.Context, string) (bool, error) { return false, nil }

// CaughtUp assumes that the wait is over.
func (p *Plan) CaughtUp(context.Context, string) error { return nil }

// Withdraw isn't recorded: the owner soon writes the key again.
func (p *Plan) Withdraw(context.Context, string) (bool, error) { return false, nil }

// Has doesn't ask, and can't assume the key is missing.
func (p *Plan) Has(context.Context, string) (bool, error) {
	return false, errors.New("a plan does not ask etcd")
}

// Snapshot records nothing: the host writes the snapshot's file, and records that.
func (p *Plan) Snapshot(context.Context, string, io.Writer) (SnapshotInfo, error) {
	return SnapshotInfo{}, nil
}
