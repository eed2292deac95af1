// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import "context"

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

// Plan records instead of changing the membership, of which it knows nothing.
type Plan struct{ record func(Action) }

var _ Etcd = Plan{}

// NewPlan returns an Etcd that hands each change to record.
func NewPlan(record func(Action)) Plan { return Plan{record} }

// Members implements Etcd.
func (Plan) Members(context.Context) ([]Member, error) { return nil, nil }

// Join implements Etcd. The members that there are stand in the answer as one
// with a telling name.
func (p Plan) Join(_ context.Context, name, peerURL string) ([]Member, bool, error) {
	p.record(Action{Add, name, peerURL})
	return []Member{
		{Name: "<each member then>", PeerURL: "<its peer URL>"},
		{Name: name, PeerURL: peerURL, Learner: true},
	}, true, nil
}

// Promote implements Etcd.
func (p Plan) Promote(_ context.Context, peerURL string) error {
	p.record(Action{Verb: Promote, PeerURL: peerURL})
	return nil
}

// Leave implements Etcd.
func (p Plan) Leave(_ context.Context, peerURL string) (bool, error) {
	p.record(Action{Verb: Remove, PeerURL: peerURL})
	return true, nil
}
