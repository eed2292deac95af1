// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

type tellingMembers struct {
	*phasetest.FakeMembers
	record func(etcd.Action)
}

func (m tellingMembers) Join(ctx context.Context, name, peer string) ([]etcd.Member, bool, error) {
	list, added, err := m.FakeMembers.Join(ctx, name, peer)
	if added {
		m.record(etcd.Action{Verb: etcd.Add, Name: name, PeerURL: peer})
	}
	return list, added, err
}

func (m tellingMembers) Promote(ctx context.Context, peer string) error {
	m.record(etcd.Action{Verb: etcd.Promote, PeerURL: peer})
	return m.FakeMembers.Promote(ctx, peer)
}

// joinPlay is a joining node in two views: as its cluster describes it, and as assumed when nobody is asked.
type joinPlay struct {
	known, assumed *config.Node
	host           host.Host
	live           cluster.Cluster
	etcd           *phasetest.FakeMembers
	workflow       []step.Phase
}

func (p *joinPlay) run(t *testing.T, n *config.Node, h host.Host, c cluster.Cluster, e etcd.Etcd, r *phasetest.Record) {
	t.Helper()
	env := &step.Env{Config: n, Host: h, Cluster: c, Etcd: e, UI: phasetest.PhaseUI{UI: phasetest.QuietUI(), Record: r}}
	if err := step.Run(t.Context(), env, p.workflow, step.Options{Serial: true}); err != nil {
		t.Fatal(err)
	}
}

// compare plans twice, joins, and compares the three.
func (p *joinPlay) compare(t *testing.T) {
	t.Helper()
	plans := map[*config.Node]*phasetest.Record{p.known: {}, p.assumed: {}}
	for n, r := range plans {
		p.run(t, n, plan.NewOverlay(p.host, r.OnHost), cluster.NewPlan(r.Intended, nil), etcd.NewPlan(r.OnEtcd), r)
	}
	done := &phasetest.Record{}
	p.run(t, p.known, plan.NewRecorder(p.host, done.OnHost), cluster.NewPlan(done.Intended, p.live), tellingMembers{p.etcd, done.OnEtcd}, done)
	// The plan can't know the other members of etcd.
	hidden := cmp.Transformer("", func(entry string) string {
		if strings.Contains(entry, "--initial-cluster=") {
			return strings.Split(entry, "\n")[0]
		}
		return entry
	})
	if diff := cmp.Diff(plans[p.known].InOrder(), done.InOrder(), cmp.FilterValues(func(a, b string) bool { return strings.Contains(a, "--initial-cluster=") }, hidden)); diff != "" {
		t.Errorf("the plan is not what the run did (-plan +run):\n%s", diff)
	}
	if diff := cmp.Diff(plans[p.assumed].Titles(), done.Titles()); diff != "" {
		t.Errorf("the plan that asks nobody differs (-plan +run):\n%s", diff)
	}
	if len(done.Entries) < 8 {
		t.Errorf("only %d entries", len(done.Entries))
	}
}

// assume returns the node a plan assumes when it asks nobody.
func assume(t *testing.T, h host.Host, flags config.JoinFlags, name string) *config.Node {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: name}}
	self, _, err := config.LoadJoin(nil, flags, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: h, UI: phasetest.QuietUI(), Options: opts, Connect: func([]byte) cluster.Cluster {
		t.Error("the cluster was asked")
		return nil
	}}
	n, _, err := d.Assume(t.Context(), self, plan.NewOverlay(h, func(host.Action) {}))
	if err != nil {
		t.Fatal(err)
	}
	if !n.Join.Assumed {
		t.Error("the plan does not say that it is assumed")
	}
	return n
}

// byToken returns the flags of a join whose cluster doesn't exist.
func byToken(name string, more config.JoinFlags) config.JoinFlags {
	more.Given = append(more.Given, "token", "discovery-token-unsafe-skip-ca-verification", "node-name", "cri-socket")
	more.Endpoint, more.Token, more.SkipCAVerification = "192.0.2.1:6443", fixture.Token, true
	more.NodeName, more.CRISocket = name, "unix:///run/containerd/containerd.sock"
	return more
}

func TestJoinPlanIsTrue(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, s *phasetest.JoinStage){
		"fresh":          func(*testing.T, *phasetest.JoinStage) {},
		"other kubelet":  func(t *testing.T, s *phasetest.JoinStage) { s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", "X=y\n") },
		"wide directory": func(t *testing.T, s *phasetest.JoinStage) { s.Put(t, "/var/lib/kubelet/x", "") },
	} {
		t.Run("worker, "+name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			before(t, s)
			if err := s.Discover(t); err != nil {
				t.Fatal(err)
			}
			s.FakeHost.Before = func(_ context.Context, order string) error {
				if order == "start "+node.KubeletUnit { // it gets its certificate once it runs
					s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
				}
				return nil
			}
			p := &joinPlay{known: s.Config, assumed: assume(t, s.FakeHost, byToken("worker-1", config.JoinFlags{}), "worker-1"), host: s.FakeHost, live: s.API, etcd: &phasetest.FakeMembers{},
				workflow: []step.Phase{kubelet.StartJoin(), kubelet.WaitBootstrap()}}
			p.compare(t)
		})
	}
	t.Run("control plane", func(t *testing.T) {
		s := newPlaneStage(t, phasetest.StoredPlane)
		if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
			t.Fatal(err)
		}
		flags := byToken("cp-2", config.JoinFlags{Given: []string{"control-plane", "certificate-key", "apiserver-advertise-address"},
			ControlPlane: true, CertificateKey: phasetest.SomeKey, APIServerAdvertiseAddress: "192.0.2.12"})
		p := &joinPlay{known: s.Config, assumed: assume(t, s.FakeHost, flags, "cp-2"), host: s.FakeHost, live: s.api(), etcd: s.etcd, workflow: joinPlane()}
		p.compare(t)
		s.Put(t, phasetest.EtcdLog, phasetest.LogOf(9, 0, true))
		again := &phasetest.Record{}
		p.run(t, p.known, plan.NewOverlay(p.host, again.OnHost), cluster.NewPlan(again.Intended, nil), etcd.NewPlan(again.OnEtcd, thisnode.KnownEtcdMembers(p.host, p.known.Paths)...), again)
		if said := strings.Join(again.Titles(), "\n"); strings.Contains(said, "etcd learner") || strings.Contains(said, "etcd member") || strings.Contains(said, "etcd.yaml") {
			t.Errorf("a plan for a control plane that has joined changes etcd:\n%s", said)
		}
	})
}

// TestAssumeGoesByWhatIsHere: the plan of a node that has joined only removes the bootstrap kubeconfig.
func TestAssumeGoesByWhatIsHere(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.Play(t, kubelet.StartJoin())
	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	flags := byToken("worker-1", config.JoinFlags{})
	flags.Endpoint = "192.0.2.1:6443" // as in kubelet.conf
	n := assume(t, s.FakeHost, flags, "worker-1")
	r := &phasetest.Record{}
	p := &joinPlay{workflow: []step.Phase{kubelet.StartJoin(), kubelet.WaitBootstrap()}}
	p.run(t, n, plan.NewOverlay(s.FakeHost, r.OnHost), cluster.NewPlan(r.Intended, nil), nil, r)
	var got []string
	for _, a := range r.Host {
		got = append(got, a.String())
	}
	if diff := cmp.Diff([]string{"remove /etc/kubernetes/bootstrap-kubelet.conf"}, got); diff != "" {
		t.Errorf("a member is to do (-want +got):\n%s", diff)
	}
}
