// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// severalURLs is an etcd whose members have several peer URLs. cp-2 answers at its second one only.
type severalURLs struct{ etcd.Etcd }

func (severalURLs) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{
		{Member: etcd.Member{ID: 1, Cluster: 7, Name: "cp-1", PeerURL: "https://a:2380", MorePeerURLs: []string{"https://b:2380"}}, Answers: true, Status: etcd.Status{Revision: 500}},
		{Member: etcd.Member{ID: 2, Cluster: 7, Name: "cp-2", PeerURL: "https://c:2380", MorePeerURLs: []string{"https://d:2380"}}},
	}, nil
}

func (severalURLs) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i := range all {
		if all[i].URL == "https://d:2380" {
			all[i].Err = nil
		}
	}
	return all
}

// TestOthersWithSeveralURLs: a restore finds this host's member, and so the present revision, and asks the others at all their URLs.
func TestOthersWithSeveralURLs(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Etcd = severalURLs{}
	o := node.EtcdOthers{Own: manifests.LocalMember{Name: "cp-1", PeerURL: "https://b:2380"}}
	phasetest.Fatal(t, o.Find(t.Context(), s.Env))
	if o.Revision != 500 || o.Cluster != 7 {
		t.Errorf("revision %d, cluster %d", o.Revision, o.Cluster)
	}
	fact.List(t, o.Running, "cp-2")
	fact.List(t, o.Silent)
}

// elsewhere is an etcd with the members cp-1 and cp-2. At the peer URLs of cp-2 to cp-5, hosts of other clusters answer.
type elsewhere struct {
	etcd.Etcd
	fails error // of cp-1
}

func (e elsewhere) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{
		{Member: etcd.Member{ID: 1, Cluster: 7, Name: "cp-1", PeerURL: "https://cp-1:2380"}, Answers: true, Err: e.fails},
		{Member: etcd.Member{ID: 2, Cluster: 7, Name: "cp-2", PeerURL: "https://cp-2:2380"}},
	}, nil
}

func (elsewhere) Peers(_ context.Context, urls []string) (all []etcd.Peer) {
	for _, url := range urls {
		p := etcd.Peer{URL: url, Stranger: true, Err: etcd.AcceptedError{Err: x509.UnknownAuthorityError{}}}
		if url == "https://cp-4:2380" {
			p = etcd.Peer{URL: url, Cluster: 8}
		}
		if url == "https://cp-5:2380" {
			p = etcd.Peer{URL: url, Cluster: 7}
		}
		all = append(all, p)
	}
	return all
}

// TestOthersElsewhere: a host that answers at a former member's address, and isn't one, is in nobody's way while etcd knows its members.
// Otherwise the operator decides. A member that has identified itself is always in the way.
func TestOthersElsewhere(t *testing.T) {
	at := func(name string) etcd.Member { return etcd.Member{Name: name, PeerURL: "https://" + name + ":2380"} }
	for name, c := range map[string]struct {
		fails            error
		earlier          []etcd.Member
		running, foreign []string
	}{
		"they have left":        {nil, []etcd.Member{at("cp-3"), at("cp-4")}, nil, []string{"cp-2"}},
		"no leader knows":       {errors.New("no leader"), []etcd.Member{at("cp-3"), at("cp-4")}, nil, []string{"cp-2", "cp-3", "cp-4"}},
		"one is a member still": {nil, []etcd.Member{at("cp-3"), at("cp-5")}, []string{"cp-5"}, []string{"cp-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Etcd = elsewhere{fails: c.fails}
			o := node.EtcdOthers{Own: manifests.LocalMember{Name: "cp-1", PeerURL: "https://cp-1:2380"}, Earlier: c.earlier}
			phasetest.Fatal(t, o.Find(t.Context(), s.Env))
			fact.List(t, o.Running, c.running...)
			fact.List(t, o.Foreign, c.foreign...)
			fact.List(t, o.Silent)
			fact.List(t, o.Names(), c.running...)
			var urls []string
			for _, name := range c.foreign {
				urls = append(urls, at(name).PeerURL)
			}
			var want []phasetest.FoundAs
			if len(c.running) > 0 {
				want = append(want, phasetest.FoundAs{Name: "error " + fault.EtcdOtherMembers, Facts: c.running})
			}
			found := o.Findings()
			phasetest.CheckFindings(t, found, append(want, phasetest.FoundAs{Name: "error " + fault.EtcdOtherMembers, Facts: urls})...)
			for _, f := range found {
				if final := strings.Contains(f.Message, "cp-5"); f.Final != final || strings.Contains(f.Remedy, "--ignore-preflight-errors=EtcdOtherMembers") == final {
					t.Errorf("final: %t: %s", f.Final, f)
				}
			}
		})
	}
}

// removed is an etcd whose members answer at their peer URLs, and don't list this node's.
type removed struct {
	etcd.Etcd
	cluster uint64
	silent  bool
}

func (removed) Health(context.Context) ([]etcd.Health, error) {
	return nil, errors.New("connection refused")
}

func (r removed) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i := range all {
		if all[i].URL == "https://cp-2:2380" && !r.silent {
			all[i] = etcd.Peer{URL: all[i].URL, Cluster: r.cluster, Members: []etcd.Member{{ID: 2, Name: "cp-2", PeerURL: "https://cp-2:2380"}}}
		}
	}
	return all
}

// TestOthersOfFormerMember: a host that may have the cluster's present data isn't reset before the operator has looked.
func TestOthersOfFormerMember(t *testing.T) {
	const safe = "`slipway reset --force` here"
	for name, c := range map[string]struct {
		answers removed
		stored  []etcd.Member // by its own data
		former  bool
	}{
		"removed, as others say":        {removed{cluster: 0xc}, nil, true},
		"removed, as its own data says": {removed{silent: true}, []etcd.Member{{ID: 2, Name: "cp-2", PeerURL: "https://cp-2:2380"}}, true},
		"still a member":                {removed{silent: true}, []etcd.Member{{ID: 0xa, Name: "cp-1", PeerURL: phasetest.OwnPeer}, {ID: 2, Name: "cp-2", PeerURL: "https://cp-2:2380"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			manifest, err := manifests.Encode(manifests.Etcd(s.Config, manifests.HostView{}, nil))
			phasetest.Fatal(t, err)
			s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(manifest))
			s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xc, true))
			s.Etcd = storing{c.answers, c.stored}
			o := node.EtcdOthers{Own: manifests.LocalMember{Name: "cp-1", PeerURL: phasetest.OwnPeer}, Data: "/var/lib/etcd/member",
				Earlier: []etcd.Member{{Name: "cp-2", PeerURL: "https://cp-2:2380"}}}
			again := o
			phasetest.Fatal(t, o.Find(t.Context(), s.Env))
			for _, f := range o.Findings() {
				if strings.Contains(f.Remedy, safe) != c.former {
					t.Errorf("former: %t: %s", c.former, f)
				}
			}
			if strings.Contains(o.Doubt(), safe) != c.former {
				t.Errorf("former: %t: %q", c.former, o.Doubt())
			}
			if err := again.Ask(t.Context(), s.Env, "run this again"); !c.answers.silent {
				fact.In(t, fault.Remedy(err), safe, "cp-2")
			}
		})
	}
}

// storing is an etcd whose member on this node tells its peers who the members are, as its data has them.
type storing struct {
	removed
	own []etcd.Member
}

func (s storing) Peers(ctx context.Context, urls []string) []etcd.Peer {
	all := s.removed.Peers(ctx, urls)
	for i := range all {
		if all[i].URL == phasetest.OwnPeer {
			all[i] = etcd.Peer{URL: all[i].URL, Members: s.own}
		}
	}
	return all
}

// TestForeignFinding: an etcd of this host's CA in another cluster may be the restored one, and is nothing to reset at once.
func TestForeignFinding(t *testing.T) {
	restored := node.NewForeignFinding(etcd.Peer{URL: "https://cp-2:2380", Cluster: 8})
	stranger := node.NewForeignFinding(etcd.Peer{URL: "https://cp-2:2380", Stranger: true, Err: etcd.AcceptedError{Err: x509.UnknownAuthorityError{}}})
	for _, f := range []fault.Finding{restored, stranger} {
		fact.In(t, f.Remedy, "`slipway reset`", "--ignore-preflight-errors=EtcdOtherMembers")
	}
	if !strings.Contains(restored.Remedy, "`slipway reset --force` here") || strings.Contains(stranger.Remedy, "`slipway reset --force` here") {
		t.Errorf("restored: %s\nstranger: %s", restored.Remedy, stranger.Remedy)
	}
}

// restored is the only member of an etcd whose data was restored by hand, without the cluster's flags.
var restored = etcd.Member{ID: 0xa, Cluster: 0xc, Name: "cp-1", PeerURL: "http://localhost:2380"}

// hostOfMember is a host with etcd's static Pod, and this log.
func hostOfMember(t *testing.T, log string) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	manifest, err := manifests.Encode(manifests.Etcd(s.Config, manifests.HostView{}, nil))
	phasetest.Fatal(t, err)
	s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(manifest))
	if log != "" {
		s.Put(t, phasetest.EtcdLog, log)
	}
	return s
}

// TestOwnMember by the IDs in its log, or else by the address in its static Pod.
func TestOwnMember(t *testing.T) {
	other := etcd.Member{ID: 0xb, Cluster: 0xc, Name: "cp-2", PeerURL: "https://cp-2:2380"}
	listed := etcd.Member{ID: 0xd, Cluster: 0xc, Name: "cp-1", PeerURL: phasetest.OwnPeer}
	inLog := phasetest.LogOf(0xa, 0xc, true)
	for name, c := range map[string]struct {
		log     string
		members []etcd.Member
		want    int
		err     bool
	}{
		"restored by hand":                       {inLog, []etcd.Member{other, restored}, 1, false},
		"the IDs come before the address":        {inLog, []etcd.Member{listed, restored}, 1, false},
		"a copy of another member's data":        {inLog, []etcd.Member{listed, {ID: 0xa, Cluster: 0xc, Name: "cp-2", PeerURL: "https://cp-2:2380"}}, 0, false},
		"a member of another cluster":            {phasetest.LogOf(0xa, 0xe, true), []etcd.Member{other, restored}, -1, false},
		"a list that doesn't name the cluster":   {inLog, []etcd.Member{{ID: 0xa, PeerURL: "https://x:2380"}}, 0, false},
		"by its address, before its first start": {"", []etcd.Member{other, listed}, 1, false},
		"by its address, with a torn log":        {"torn", []etcd.Member{other, listed}, 1, false},
		"unknown, with a torn log":               {"torn", []etcd.Member{other, restored}, -1, true},
		"removed":                                {inLog, []etcd.Member{other}, -1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := hostOfMember(t, c.log)
			if i, err := node.OwnMember(s.Env, c.members); i != c.want || (err != nil) != c.err {
				t.Errorf("%d, %v", i, err)
			}
			want := phasetest.OwnPeer
			if c.want >= 0 {
				want = c.members[c.want].PeerURL
			}
			if url := node.OwnPeerURL(s.Env, c.members); url != want {
				t.Errorf("%s, want %s", url, want)
			}
		})
	}
}

// TestMemberRestoredByHand may restart if it's alone, and isn't another member in a restore's eyes.
func TestMemberRestoredByHand(t *testing.T) {
	for name, m := range map[string]*phasetest.FakeMembers{
		"answers":          {List: []etcd.Member{restored}},
		"tells only peers": {List: []etcd.Member{restored}, Fail: map[string]error{"health": errors.New("connection refused")}, TellsPeers: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := hostOfMember(t, phasetest.LogOf(0xa, 0xc, true))
			s.Etcd = m
			phasetest.Fatal(t, node.AwaitPeers(t.Context(), s.Env))
			o := node.EtcdOthers{Own: manifests.LocalMember{Name: "cp-1", PeerURL: phasetest.OwnPeer}, Data: "/var/lib/etcd/member"}
			phasetest.Fatal(t, o.Find(t.Context(), s.Env))
			fact.List(t, append(o.Running, o.Silent...))
			if o.Doubt() != "" {
				t.Error(o.Doubt())
			}
		})
	}
}
