// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"io"
	"slices"

	"github.com/pkg/errors"
)

// Verb is what an Action does.
type Verb string

// The verbs of a plan.
const (
	Add     Verb = "add etcd learner"
	Promote Verb = "promote etcd member"
	Remove  Verb = "remove etcd member"
)

// Action is one change that a dry run leaves out.
type Action struct {
	Verb    Verb
	Name    string // of a member that is added
	PeerURL string
}

// Plan records changes instead of making them. It knows only the members that
// NewPlan was given.
type Plan struct {
	record  func(Action)
	members []Member
}

var _ Etcd = (*Plan)(nil)

// NewPlan returns an Etcd with these voters, if any are known. It passes each
// change to record.
func NewPlan(record func(Action), members ...Member) *Plan { return &Plan{record, members} }

// Members implements Etcd.
func (p *Plan) Members(context.Context) ([]Member, error) { return p.members, nil }

func (p *Plan) knows(peerURL string) bool {
	return slices.ContainsFunc(p.members, func(m Member) bool { return m.PeerURL == peerURL })
}

// Join implements Etcd. In the answer, a placeholder stands for the existing
// members.
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

// Promote implements Etcd.
func (p *Plan) Promote(_ context.Context, peerURL string) error {
	if !p.knows(peerURL) {
		p.record(Action{Verb: Promote, PeerURL: peerURL})
	}
	return nil
}

// Leave implements Etcd.
func (p *Plan) Leave(_ context.Context, peerURL string) (bool, error) {
	p.record(Action{Verb: Remove, PeerURL: peerURL})
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(m Member) bool { return m.PeerURL == peerURL })
	return true, nil
}

// Health implements Etcd. A plan asks nobody, and assumes that each member is
// healthy.
func (p *Plan) Health(context.Context) ([]Health, error) {
	var all []Health
	for _, m := range p.members {
		all = append(all, Health{Member: m})
	}
	return all, nil
}

// MoveLeader implements Etcd. A plan does not know who leads. Another leader
// changes nothing that lasts, so it is not recorded.
func (p *Plan) MoveLeader(context.Context, string) (bool, error) { return false, nil }

// CaughtUp implements Etcd: what a run waits for has happened.
func (p *Plan) CaughtUp(context.Context, string) error { return nil }

// Withdraw implements Etcd: the owner soon writes the key again, so it is not
// recorded.
func (p *Plan) Withdraw(context.Context, string) (bool, error) { return false, nil }

// Has implements Etcd. A plan does not ask, and a key may be there.
func (p *Plan) Has(context.Context, string) (bool, error) {
	return false, errors.New("a plan does not ask etcd")
}

// Snapshot implements Etcd. The file that a snapshot is written to is the
// host's, which records it.
func (p *Plan) Snapshot(context.Context, string, io.Writer) (SnapshotInfo, error) {
	return SnapshotInfo{}, nil
}
