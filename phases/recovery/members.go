// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// askMembers asks all members, and fails if etcd has a quorum, may get one, or if a member answers that nobody gives up. If a run was
// interrupted, the error says how to go back.
func (r *Recovery) askMembers(ctx context.Context, env *step.Env) error {
	err := r.ask(ctx, env)
	if r.asked = env.Host.Now(); r.begun {
		err = r.journal.WithUndoRemedy(env, err)
	}
	return err
}

func (r *Recovery) ask(ctx context.Context, env *step.Env) error {
	all, err := r.members(ctx, env)
	if err != nil {
		return err
	}
	i := r.findOwn(all)
	switch {
	case i < 0:
		return fault.New(fmt.Sprintf("etcd's list of members doesn't have this host's, %s (%s)", r.own.Name, r.own.PeerURL),
			"if another host has the data of a present member ("+labels(all)+"), recover there, unless etcd still works. Then run `slipway reset --force` here, and join this host again")
	case all[i].Learner:
		return fault.New("this host's member "+r.own.Name+" is a learner, which may lack committed changes", "recover on another control plane")
	}
	r.others, r.journal.Others = without(all, func(m etcd.Member) bool { return m.ID == all[i].ID }), nil
	for _, m := range r.others {
		r.journal.Others = append(r.journal.Others, m.Label())
	}
	if err := r.checkAbandoned(all); err != nil {
		return err
	}
	return r.askOthers(ctx, env, all, all[i])
}

// findOwn returns the position of this host's member. `etcdctl member update` may have given it other URLs than its static Pod has.
func (r *Recovery) findOwn(all []etcd.Member) int {
	if i := slices.IndexFunc(all, func(m etcd.Member) bool { return m.ID == r.end.member }); i >= 0 {
		return i
	}
	return slices.IndexFunc(all, func(m etcd.Member) bool { return m.At(r.own.PeerURLs()...) })
}

// members are all members this host's etcd knows. It lists them to peers even without a quorum; if it's down, its database does.
func (r *Recovery) members(ctx context.Context, env *step.Env) (members []etcd.Member, err error) {
	limited, cancel := context.WithTimeout(ctx, etcd.HealthTimeout)
	defer cancel()
	policy := retry.Policy{First: node.PollInterval, Retryable: func(err error) bool { return !errors.As(err, new(etcd.CredentialsError)) }}
	err = policy.Do(limited, func(ctx context.Context) (err error) { // an etcd that keeps failing has the database open at times
		own := etcd.BestAnswer(env.Etcd.Peers(ctx, r.own.PeerURLs()))
		switch {
		case errors.As(own.Err, new(etcd.CredentialsError)):
			return newProbeError(own.Err)
		case own.Err == nil && len(own.Members) > 0:
			members = own.Members
			return nil
		}
		members, err = r.storedMembers(env)
		if own.Err != nil {
			err = errors.WithMessagef(err, "its etcd does not answer (%v), and its data cannot be read", own.Err)
		}
		return err
	})
	return members, errors.WithMessage(err, "find the members of etcd")
}

func (r *Recovery) storedMembers(env *step.Env) ([]etcd.Member, error) {
	f, err := env.Host.Open(filepath.Join(r.replacement.Data, "snap", "db"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return etcd.StoredMembers(f)
}

// checkAbandoned fails if a name in Abandon isn't another member's.
func (r *Recovery) checkAbandoned(all []etcd.Member) error {
	for _, name := range r.Abandon {
		if !slices.ContainsFunc(r.others, func(m etcd.Member) bool { return named(m, name) }) {
			return fault.New(fmt.Sprintf("--abandon=%s: etcd has no other member of this name", name), "its members are "+labels(all))
		}
	}
	return nil
}

func named(m etcd.Member, name string) bool {
	return name != "" && (m.Name == name || m.At(name) || m.IDText() == name)
}

func labels(members []etcd.Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Label())
	}
	return strings.Join(all, ", ")
}

// compare says how far others have come, as far as they say, after the end of this host's log. A member that isn't the leader learns
// later which of its entries are committed, so its log may be longer than it says. The status is empty if another answers in its place.
func (r *Recovery) compare(others []etcd.Member, health []etcd.Health) (text string) {
	for _, m := range others {
		i := slices.IndexFunc(health, func(h etcd.Health) bool { return h.ID == m.ID && h.Status.Committed > 0 })
		switch {
		case i < 0:
			text += fmt.Sprintf(" %s does not say how far its log goes.", m.Label())
		case health[i].Status.Committed > r.end.index:
			text += fmt.Sprintf(" %s has a longer log: its entries up to %d are committed.", m.Label(), health[i].Status.Committed)
		default:
			text += fmt.Sprintf(" %s knows that its entries up to %d are committed, and its log may be longer.", m.Label(), health[i].Status.Committed)
		}
	}
	return text
}
