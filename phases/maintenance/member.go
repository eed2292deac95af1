// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Removal takes a member out of etcd whose host can't do it itself.
type Removal struct{ member etcd.Health }

// NewRemoval finds the member with this name, ID or peer URL, and fails unless it may go. It changes nothing.
func NewRemoval(ctx context.Context, env *step.Env, which string) (*Removal, error) {
	if err := refuseExternal(env); err != nil {
		return nil, err
	}
	all, err := ask(ctx, env)
	if err != nil {
		return nil, err
	}
	m, err := find(all, which)
	if err != nil {
		return nil, err
	}
	own, err := node.OwnMember(env, etcd.MembersOf(all))
	if err != nil {
		return nil, fault.WithRemedy(errors.WithMessage(err, "it is not known which member is this host's"), "run this as root, or on another control plane")
	}
	if own >= 0 && all[own].ID == m.ID {
		return nil, fault.New(fmt.Sprintf("%s is this host's own member: without it, this control plane would not work", m.Label()),
			"take the whole node out of the cluster: `slipway reset` here")
	}
	return &Removal{m}, node.CheckRemovalQuorum(all, m.Member)
}

// Summary says what the removal means, before it's confirmed.
func (r *Removal) Summary() string {
	text := fmt.Sprintf("Member %s (%s) leaves etcd for good.", r.member.Label(), r.member.IDText())
	if r.member.Answers {
		text += " IT STILL RUNS: its etcd stops, and so its control plane fails. `slipway reset` on its host removes the member,\n" +
			"and everything that needs it."
	}
	return text
}

// Phases is the workflow.
func (r *Removal) Phases() []step.Phase {
	return []step.Phase{{Name: "remove-etcd-member", Summary: "Remove the member from etcd", Run: r.run}}
}

// run looks again: there may have been a long time to answer the question.
func (r *Removal) run(ctx context.Context, env *step.Env) error {
	all, err := ask(ctx, env)
	if err != nil {
		return err
	}
	removed := false
	if i := slices.IndexFunc(all, func(m etcd.Health) bool { return m.ID == r.member.ID }); i >= 0 { // another may have its address
		if err := node.CheckRemovalQuorum(all, all[i].Member); err != nil {
			return err
		}
		if removed, err = env.Etcd.Leave(ctx, all[i].PeerURL); err != nil {
			return etcd.WithHealth(ctx, env.Etcd, err)
		}
	}
	if removed {
		env.UI.Printf("Member %s has left etcd", r.member.Label())
	} else {
		env.UI.Printf("Member %s has already left etcd", r.member.Label())
	}
	return nil
}

// find returns the member with a name, peer URL or ID, if exactly one fits.
func find(all []etcd.Health, wanted string) (etcd.Health, error) {
	named := func(m etcd.Health) bool {
		return wanted != "" && (m.Name == wanted || m.At(wanted) || m.IDText() == strings.TrimPrefix(strings.ToLower(wanted), "0x"))
	}
	var found, labels []string
	for _, m := range all {
		label := fmt.Sprintf("%s (%s)", m.Label(), m.IDText())
		if labels = append(labels, label); named(m) {
			found = append(found, label)
		}
	}
	switch len(found) {
	case 1:
		return all[slices.IndexFunc(all, named)], nil
	case 0:
		return etcd.Health{}, fault.New(fmt.Sprintf("etcd has no member %q", wanted), "its members are "+strings.Join(labels, ", "))
	}
	return etcd.Health{}, fault.New(fmt.Sprintf("etcd has several members %q: %s", wanted, strings.Join(found, ", ")), "name the member by its ID")
}
