// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdOthers finds out which other members etcd has, and whether they run: data that's restored begins a cluster of one member,
// and the others would carry on as a separate cluster. Neither the snapshot nor an etcd that is down knows who has joined since, so
// every readable trace of a member counts.
type EtcdOthers struct {
	// Own is this node's member, Data its directory `member`. Earlier are members known from elsewhere, such as the snapshot.
	Own     manifests.LocalMember
	Data    string
	Earlier []etcd.Member
	// Revision is the keys' present revision: etcd's, or else as stored; 0 if it's unknown. Running names the others that answer, Foreign
	// those at whose addresses something answers that isn't known to be of this etcd, and Silent all others. Cluster is the ID of the etcd
	// cluster, 0 unless this node's member answers.
	Revision                 int64
	Cluster                  uint64
	Running, Foreign, Silent []string

	members []*otherMember
	// elsewhere labels all members with a foreign answer, even if they have left.
	elsewhere []string
	// known is set if etcd, its data or the API lists the present members; unread says why the data doesn't. planned marks a
	// plan.
	known, planned bool
	unread         string
	// id is the ID in this node's data while its member doesn't answer, and serving its ID while it does; otherwise they're 0. former is
	// set if a list of members lacks id.
	id, serving uint64
	former      bool
}

// otherMember may be a member of etcd beside this node's. Its name is empty if unknown.
type otherMember struct {
	name    string
	urls    []string
	runs    bool
	foreign []etcd.Peer // answers at its URLs that don't seem to be its own
	why     []string    // the others don't answer
}

func (m *otherMember) label() string { return cmp.Or(m.name, strings.Join(m.urls, ", ")) }

// Ask fails if other members still run. again is the operator's next step once they don't.
func (o *EtcdOthers) Ask(ctx context.Context, env *step.Env, again string) error {
	if err := o.Find(ctx, env); err != nil || len(o.Running) == 0 {
		return err
	}
	return fault.New(o.othersRun(), o.resetOthers()+"; then "+again+", and join these nodes again (`slipway join ... --control-plane`)")
}

func (o *EtcdOthers) othersRun() string {
	return "etcd has other members that run: " + strings.Join(o.Running, ", ") +
		". A restored etcd starts as a cluster of one member, and the others would carry on with their own data"
}

func (o *EtcdOthers) resetOthers() string {
	return o.UnlessNeeded() + "run `slipway reset` on " + strings.Join(o.Running, ", then on ")
}

// Find finds the others, and asks them whether they run.
func (o *EtcdOthers) Find(ctx context.Context, env *step.Env) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		all = nil
	}
	id, _ := identityOf(env, o.Own)
	own := id.Find(etcd.MembersOf(all))
	answers := own >= 0 && all[own].Answers
	if answers {
		o.Revision, o.Cluster, o.serving = all[own].Status.Revision, all[own].Cluster, all[own].ID
	} else { // a member that answers is one
		o.id = id.Data.Member
	}
	o.gather(ctx, env, all, own)
	o.askOthers(ctx, env)
	for _, m := range o.members {
		if !m.runs && len(m.foreign) > 0 {
			o.elsewhere = append(o.elsewhere, m.label())
		}
	}
	if answers && all[own].Err == nil { // with a leader, it knows who has left
		o.members = slices.DeleteFunc(o.members, func(m *otherMember) bool { return !m.runs && !isAmong(all, m) })
	}
	for _, m := range o.members {
		switch {
		case m.runs:
			o.Running = append(o.Running, m.label())
		case len(m.foreign) > 0:
			o.Foreign = append(o.Foreign, m.label())
		default:
			o.Silent = append(o.Silent, m.label())
		}
	}
	return nil
}

func isAmong(all []etcd.Health, m *otherMember) bool {
	return slices.ContainsFunc(all, func(h etcd.Health) bool {
		return m.name != "" && h.Name == m.name || h.At(m.urls...)
	})
}

// gather notes all possible members: from etcd itself, the data on this host, the snapshot, the static Pods, and the Nodes of
// control planes. own is the position of this node's member among all, which clients see.
func (o *EtcdOthers) gather(ctx context.Context, env *step.Env, all []etcd.Health, own int) {
	for i, m := range all {
		if i != own { // its ID may be another's, too: of a separate cluster
			o.noteOther(m.Member).answers(m.Answers)
		}
	}
	answered := own >= 0 && all[own].Answers
	if !answered {
		o.noteFormer(etcd.MembersOf(all))
	}
	for _, m := range slices.Concat(o.Earlier, thisnode.KnownEtcdMembers(env.Host, env.Config.Paths)) {
		o.noteMember(m)
	}
	for _, m := range o.Own.Initial {
		o.note(m.Name, m.PeerURL)
	}
	o.known = answered
	if !answered {
		o.gatherPresent(ctx, env)
	}
	o.gatherNodes(ctx, env)
}

// gatherPresent notes the members known to this node's etcd, even if it doesn't answer clients: while it waits for a quorum, it
// tells its peers, and while it's down, its database can be read. If it keeps crashing, it has the database open at times.
func (o *EtcdOthers) gatherPresent(ctx context.Context, env *step.Env) {
	limited, cancel := context.WithTimeout(ctx, etcd.HealthTimeout)
	defer cancel()
	policy := retry.Policy{First: ReadyInterval, Retryable: func(err error) bool { return errors.Is(err, etcd.ErrOpen) }}
	err := policy.Do(limited, func(ctx context.Context) error {
		own := etcd.BestAnswer(env.Etcd.Peers(ctx, o.Own.PeerURLs()))
		members, err := own.Members, own.Err
		if err != nil && !errors.Is(err, etcd.ErrNotAsked) {
			members, err = o.stored(env)
		}
		for _, m := range members {
			o.noteMember(m)
		}
		o.noteFormer(members)
		o.known = len(members) > 0
		return err
	})
	if o.planned = errors.Is(err, etcd.ErrNotAsked); err != nil {
		o.unread = err.Error()
	}
}

func (o *EtcdOthers) stored(env *step.Env) ([]etcd.Member, error) {
	f, err := env.Host.Open(filepath.Join(o.Data, "snap", "db"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	members, err := etcd.StoredMembers(f)
	if err == nil {
		o.Revision, err = etcd.StoredRevision(f)
	}
	return members, err
}

// gatherNodes notes the control planes, if the API answers. Only an administrator can make a Node a control plane.
func (o *EtcdOthers) gatherNodes(ctx context.Context, env *step.Env) {
	limited, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	nodes, err := env.Cluster.Nodes(limited)
	if err != nil {
		return
	}
	o.known = o.known || len(nodes) > 0
	for i := range nodes {
		if _, controlPlane := nodes[i].Labels[cluster.LabelControlPlane]; !controlPlane || nodes[i].Name == env.Config.Name {
			continue
		}
		o.note(nodes[i].Name, "") // even without an address
		for _, a := range nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				o.note(nodes[i].Name, manifests.PeerURL(a.Address))
			}
		}
	}
}

// note returns the other member with this name or peer URL, adding it if it's new; nil for this node's member.
func (o *EtcdOthers) note(name, peerURL string) *otherMember {
	if slices.Contains(o.Own.PeerURLs(), peerURL) || name != "" && name == o.Own.Name {
		return nil
	}
	i := slices.IndexFunc(o.members, func(m *otherMember) bool {
		return name != "" && m.name == name || peerURL != "" && slices.Contains(m.urls, peerURL)
	})
	if i < 0 {
		i = len(o.members)
		o.members = append(o.members, &otherMember{})
	}
	m := o.members[i]
	m.name = cmp.Or(m.name, name)
	if peerURL != "" && !slices.Contains(m.urls, peerURL) {
		m.urls = append(m.urls, peerURL)
	}
	return m
}

// noteOther notes a member with all its peer URLs; it returns nil if one of them is this node's.
func (o *EtcdOthers) noteOther(m etcd.Member) (noted *otherMember) {
	if m.At(o.Own.PeerURLs()...) {
		return nil
	}
	for _, url := range m.PeerURLs() {
		noted = o.note(m.Name, url)
	}
	return noted
}

func (m *otherMember) answers(answers bool) {
	if m != nil {
		m.runs = m.runs || answers
	}
}

// askOthers asks the others that haven't answered yet.
func (o *EtcdOthers) askOthers(ctx context.Context, env *step.Env) {
	var urls []string
	for _, m := range o.members {
		if !m.runs {
			urls = append(urls, m.urls...)
		}
	}
	for _, peer := range env.Etcd.Peers(ctx, urls) {
		o.former = o.former || peer.Lacks(o.id)
		for _, m := range o.members {
			switch {
			case !slices.Contains(m.urls, peer.URL):
			case peer.Foreign(o.Cluster):
				m.foreign = append(m.foreign, peer)
			case peer.Alive():
				m.runs = true
			default:
				m.why = append(m.why, peer.Err.Error())
			}
		}
	}
}

// Names returns the names of the others, which the restored cluster doesn't have. A host that answers in place of a former member is none
// to reset.
func (o *EtcdOthers) Names() []string {
	names := slices.Concat(o.Running, o.Silent)
	for _, m := range o.Earlier {
		if !o.isOwn(m) {
			names = append(names, m.Label())
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == o.Own.Name || slices.Contains(o.elsewhere, name) })
}

// SayRejoin says how control planes come back that aren't members of the restored etcd.
func SayRejoin(env *step.Env, names []string) {
	for _, name := range names {
		if strings.Contains(name, "://") { // it never started, so etcd doesn't know its name
			env.UI.Nextf("etcd continues without the host at %s: run `slipway reset --force` there, and join it with the command that `slipway token create --print-join-command --control-plane` prints here", name)
			continue
		}
		env.UI.Nextf("etcd continues without node %s: run `slipway reset --force` there, `kubectl delete node --ignore-not-found %s` here, and join it with the command that `slipway token create --print-join-command --control-plane` prints here", name, name)
	}
}
