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
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// askMembers asks all members, and fails if etcd has a quorum, may get one, or if a member answers that nobody gives up.
func (r *Recovery) askMembers(ctx context.Context, env *step.Env) error {
	all, err := r.members(ctx, env)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, r.isOwn)
	switch {
	case i < 0:
		return fault.New(fmt.Sprintf("this host's member %s (%s) is not a member of its etcd any more", r.own.Name, r.own.PeerURL), "recover on another control plane")
	case all[i].Learner:
		return fault.New("this host's member "+r.own.Name+" is a learner, which may lack committed changes", "recover on another control plane")
	}
	r.others = without(all, r.isOwn)
	for _, m := range r.others {
		r.journal.Others = append(r.journal.Others, m.Label())
	}
	if err := r.knows(all); err != nil {
		return err
	}
	health, _ := etcd.AskHealth(ctx, env.Etcd) // nobody may answer
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if slices.ContainsFunc(health, func(h etcd.Health) bool { return r.isOwn(h.Member) && h.Err == nil }) {
		return fault.New("etcd has a quorum, so there is nothing to recover", "`slipway etcd status` says what it needs")
	}
	return r.refuse(all, r.answering(ctx, env, health), health)
}

// members are all members this host's etcd knows. It lists them to peers even without a quorum; if it's down, its database does.
func (r *Recovery) members(ctx context.Context, env *step.Env) (members []etcd.Member, err error) {
	limited, cancel := context.WithTimeout(ctx, etcd.HealthTime)
	defer cancel()
	err = node.Poll(limited, func(ctx context.Context) (err error) { // an etcd that keeps failing has the database open at times
		if own := env.Etcd.Peers(ctx, []string{r.own.PeerURL})[0]; own.Err == nil && len(own.Members) > 0 {
			members = own.Members
			return nil
		}
		f, err := env.Host.Open(filepath.Join(r.exchange.Data, "snap", "db"))
		if err != nil {
			return err
		}
		defer f.Close()
		members, err = etcd.StoredMembers(f)
		return err
	})
	return members, errors.WithMessage(err, "find the members of etcd")
}

// knows fails if somebody is to be abandoned who isn't another member.
func (r *Recovery) knows(all []etcd.Member) error {
	for _, name := range r.Abandon {
		if !slices.ContainsFunc(r.others, func(m etcd.Member) bool { return named(m, name) }) {
			return fault.New(fmt.Sprintf("--abandon=%s: etcd has no other member of this name", name), "its members are "+labels(all))
		}
	}
	return nil
}

func named(m etcd.Member, name string) bool {
	return name != "" && (m.Name == name || m.PeerURL == name || m.IDText() == name)
}

func labels(members []etcd.Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Label())
	}
	return strings.Join(all, ", ")
}

// answering are the other members that answer clients or peers.
func (r *Recovery) answering(ctx context.Context, env *step.Env, health []etcd.Health) (found []etcd.Member) {
	var urls []string
	for _, m := range r.others {
		urls = append(urls, m.PeerURL)
	}
	peers := env.Etcd.Peers(ctx, urls)
	for _, m := range r.others {
		peer := slices.ContainsFunc(peers, func(p etcd.Peer) bool { return p.URL == m.PeerURL && p.Err == nil })
		if peer || slices.ContainsFunc(health, func(h etcd.Health) bool { return h.PeerURL == m.PeerURL && h.Answers }) {
			found = append(found, m)
		}
	}
	return found
}

// refuse fails while a quorum is possible, and names the members that answer and aren't given up.
func (r *Recovery) refuse(all, answering []etcd.Member, health []etcd.Health) error {
	isLearner := func(m etcd.Member) bool { return m.Learner }
	voters, alive := len(without(all, isLearner)), len(without(answering, isLearner))+1
	if alive > voters/2 {
		return fault.New(fmt.Sprintf("etcd can have a quorum again: %d of its %d voters can work, with this host's (%s), and %d must", alive, voters, labels(answering), voters/2+1),
			"start them, and see what keeps them from working together: `slipway diagnose` on their hosts")
	}
	left := without(answering, func(m etcd.Member) bool {
		return slices.ContainsFunc(r.Abandon, func(name string) bool { return named(m, name) })
	})
	if len(left) == 0 {
		return nil
	}
	return fault.New(fmt.Sprintf("other members of etcd answer: %s. %s", labels(left), r.compare(left, health)),
		"recover on the host with the longest log: with the highest term or, if they're equal, the highest entry (`slipway etcd recover --dry-run` shows it on each host). "+
			"Stop the others for good (`slipway reset` there), or give them up here: --abandon="+left[0].Label())
}

// compare says how far the others have come, as far as they say.
func (r *Recovery) compare(others []etcd.Member, health []etcd.Health) string {
	text := r.end.String()
	for _, m := range others {
		i := slices.IndexFunc(health, func(h etcd.Health) bool { return h.ID == m.ID && h.Answers })
		switch {
		case i < 0:
			text += fmt.Sprintf(" %s does not say how far its log goes.", m.Label())
		case health[i].Status.Committed > r.end.index:
			text += fmt.Sprintf(" %s HAS A LONGER LOG: its entries up to %d are committed.", m.Label(), health[i].Status.Committed)
		default:
			text += fmt.Sprintf(" %s knows that its entries up to %d are committed.", m.Label(), health[i].Status.Committed)
		}
	}
	return text
}
