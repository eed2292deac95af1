// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// apiTimeout is how long the API gets to answer: without a quorum, it doesn't.
const apiTimeout = 5 * time.Second

// observations are what this host sees of the others.
type observations struct {
	health []etcd.Health
	// peers are the answers at the others' peer URLs.
	peers []etcd.Peer
	// cluster is the ID of this host's, 0 if it's unknown.
	cluster uint64
	// noAPI is why the API doesn't answer.
	noAPI error
}

// askOthers fails unless all the others are lost: silence is nothing but a host that doesn't answer at all.
func (r *Recovery) askOthers(ctx context.Context, env *step.Env, all []etcd.Member, own etcd.Member) error {
	seen := r.look(ctx, env, all)
	r.end.corrupt = r.end.corrupt || etcd.HasAlarm(seen.health, "CORRUPT") // while etcd runs, its database can't be read
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := seen.probeError(); err != nil {
		return err
	}
	if seen.noAPI == nil || slices.ContainsFunc(seen.health, func(h etcd.Health) bool { return h.ID == own.ID && h.Err == nil }) {
		return fault.New("etcd has a quorum, so there is nothing to recover", "`slipway etcd status` says what it needs; if it names no member, ask on another control plane")
	}
	return r.checkQuorumLost(all, seen)
}

// look asks everybody at the same time, so that lost hosts cost one wait. It asks known members, because a search for their endpoints
// would wait for the API first.
func (r *Recovery) look(ctx context.Context, env *step.Env, members []etcd.Member) (seen observations) {
	var urls []string
	for _, m := range r.others {
		urls = append(urls, m.PeerURLs()...)
	}
	var all sync.WaitGroup
	all.Go(func() { seen.health = env.Etcd.HealthOf(ctx, members) })
	all.Go(func() { seen.peers = env.Etcd.Peers(ctx, urls) })
	all.Go(func() { seen.cluster, _ = node.OwnEtcdCluster(env) })
	all.Go(func() {
		limited, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		seen.noAPI = env.Cluster.Read(limited, cluster.Query{Path: "/readyz"}, func(io.Reader) error { return nil })
	})
	all.Wait()
	return seen
}

// probeError is the error if this host couldn't ask anybody.
func (s observations) probeError() error {
	var useless etcd.CredentialsError
	for _, member := range s.health {
		if errors.As(member.Err, &useless) {
			return newProbeError(useless)
		}
	}
	for _, peer := range s.peers {
		if errors.As(peer.Err, &useless) {
			return newProbeError(useless)
		}
	}
	return nil
}

func newProbeError(err error) error {
	return fault.WithRemedy(errors.WithMessage(err, "the other members of etcd cannot be asked whether they run"),
		"put the file back, or make it readable; `slipway certs check-expiration` names this host's certificates")
}

// peer is the answer of a member that says most about it: it may have several URLs.
func (s observations) peer(m etcd.Member) etcd.Peer {
	asked := slices.DeleteFunc(slices.Clone(s.peers), func(p etcd.Peer) bool { return !m.At(p.URL) })
	if len(asked) == 0 {
		return etcd.Peer{Err: errors.New("it was not asked")}
	}
	return etcd.BestAnswer(asked)
}

// alive reports whether a member's etcd runs, and silent whether nobody answers at its addresses. A member may be neither, if another
// host has its address now, or if its host has the data of another cluster.
func (s observations) alive(m etcd.Member) bool {
	return slices.ContainsFunc(s.peers, func(p etcd.Peer) bool { return m.At(p.URL) && p.Alive() && !p.Foreign(s.cluster) }) ||
		slices.ContainsFunc(s.health, func(h etcd.Health) bool { return h.At(m.PeerURLs()...) && h.Answers && !h.Foreign(s.cluster) })
}

func (s observations) silent(m etcd.Member) bool {
	return s.peer(m).Silent() &&
		!slices.ContainsFunc(s.health, func(h etcd.Health) bool { return h.At(m.PeerURLs()...) && h.Answers })
}

// lacks reports whether the etcd at a member's addresses doesn't list the member with this ID.
func (s observations) lacks(m etcd.Member, id uint64) bool {
	return slices.ContainsFunc(s.peers, func(p etcd.Peer) bool { return m.At(p.URL) && p.Lacks(id) })
}

// separate reports whether the etcd at a member's addresses names another cluster than this host's. Restored or recovered data begins
// a new log, so its entries say nothing about this host's.
func (s observations) separate(m etcd.Member) bool {
	p := s.peer(m)
	return p.Cluster != 0 && p.Foreign(s.cluster)
}

// checkQuorumLost fails while a quorum is possible, and names the members that aren't silent and aren't given up.
func (r *Recovery) checkQuorumLost(all []etcd.Member, seen observations) error {
	voters := len(without(all, func(m etcd.Member) bool { return m.Learner }))
	alive := without(r.others, func(m etcd.Member) bool { return !seen.alive(m) })
	running := without(alive, func(m etcd.Member) bool { return m.Learner })
	enough := len(running)+1 >= etcd.Majority(voters)
	strange := without(r.others, func(m etcd.Member) bool { return !seen.lacks(m, r.end.member) || !enough && r.isAbandoned(m) })
	switch {
	case voters == 1:
		return fault.New("this host's member is the only voter of etcd, so no quorum is lost",
			"`slipway diagnose` says why etcd does not work; if its data is damaged, restore a snapshot (`slipway etcd restore`)")
	case len(strange) > 0:
		return r.refuseAsFormer(strange, seen)
	case enough:
		return fault.New(fmt.Sprintf("etcd could regain its quorum: %d of its %d voters are running (this host's and %s), and %d are enough%s. %s%s",
			len(running)+1, voters, labels(running), etcd.Majority(voters), seen.trouble(running), r.end, r.compare(running, seen.health)),
			"see what keeps them from working together: `slipway diagnose` on their hosts. Where etcd's data is lost for good, stop etcd (`slipway reset --force` there), and "+
				"run this again with "+r.abandon(running)+"; while they run, that does not count")
	}
	left := without(r.others, func(m etcd.Member) bool { return seen.silent(m) || r.isAbandoned(m) })
	if len(left) > 0 {
		return r.refuseFor(left, seen)
	}
	comparable := without(alive, seen.separate)
	r.logs, r.answering = r.compare(comparable, seen.health), labels(comparable)
	return nil
}

// refuseAsFormer is the error while members run whose etcd doesn't have this host's. Logs are only compared within a cluster.
func (r *Recovery) refuseAsFormer(strange []etcd.Member, seen observations) error {
	comparable, first := without(strange, seen.separate), ""
	if len(comparable) > 0 {
		first = "compare the logs first: if etcd was off there when this host joined, this host has the newer data. "
	}
	return fault.New(fmt.Sprintf("an etcd that does not have this host's member runs on the hosts of %s: "+
		"the member was removed, etcd was restored or recovered there, or it was off there when the member was added. %s%s",
		labels(strange), r.end, r.compare(comparable, seen.health)),
		first+node.UnlessNeeded+"run `slipway reset --force` on their hosts, and then this again with "+r.abandon(strange))
}

func (o Options) isAbandoned(m etcd.Member) bool {
	return slices.ContainsFunc(o.Abandon, func(name string) bool { return named(m, name) })
}

// refuseFor is the error while members are left that answer, or may run.
func (r *Recovery) refuseFor(left []etcd.Member, seen observations) error {
	answering := without(left, func(m etcd.Member) bool { return !seen.alive(m) })
	if len(answering) > 0 {
		return fault.New(fmt.Sprintf("other members of etcd answer: %s. %s%s", labels(answering), r.end, r.compare(answering, seen.health)),
			"recover on the host with the longest log: with the highest term or, if they're equal, the highest entry (`slipway etcd recover --dry-run` shows it on each host). "+
				"Stop the others for good (`slipway reset` there), or give them up here: "+r.abandon(left))
	}
	var unknown []string
	for _, m := range left {
		why := fmt.Sprint(seen.peer(m).Err)
		if p := seen.peer(m); p.Foreign(seen.cluster) {
			why = "another host may have its address: " + node.ForeignSign(p)
		}
		unknown = append(unknown, fmt.Sprintf("%s (%s)", m.Label(), why))
	}
	return fault.New(fmt.Sprintf("these members of etcd may run, or start again: %s. %s", strings.Join(unknown, ", "), r.end),
		"start them, if they have their data. If their etcd must never start again, run `slipway reset --force` on their own hosts, not on another that has the address now, and give them up here: "+r.abandon(left))
}

// abandon is the flag that gives up these members, too.
func (o Options) abandon(members []etcd.Member) string {
	names := slices.DeleteFunc(slices.Clone(o.Abandon), func(name string) bool {
		return slices.ContainsFunc(members, func(m etcd.Member) bool { return named(m, name) })
	})
	for _, m := range members {
		names = append(names, m.Label())
	}
	return "--abandon=" + strings.Join(names, ",")
}

// trouble says why members don't work that accept connections.
func (s observations) trouble(members []etcd.Member) (text string) {
	for _, m := range members {
		if err := s.peer(m).Err; err != nil {
			text += fmt.Sprintf("; %s: %v", m.Label(), err)
		}
	}
	return text
}
