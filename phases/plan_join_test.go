// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// onEtcd records an action of the plan or of the membership.
func (r *record) onEtcd(a etcd.Action) { r.add(fmt.Sprintf("%s %s %s", a.Verb, a.Name, a.PeerURL)) }

// tellingMembers is a membership that reports its changes.
type tellingMembers struct {
	*members
	record func(etcd.Action)
}

func (m tellingMembers) Join(ctx context.Context, name, peer string) ([]etcd.Member, bool, error) {
	list, added, err := m.members.Join(ctx, name, peer)
	if added {
		m.record(etcd.Action{Verb: etcd.Add, Name: name, PeerURL: peer})
	}
	return list, added, err
}

func (m tellingMembers) Promote(ctx context.Context, peer string) error {
	m.record(etcd.Action{Verb: etcd.Promote, PeerURL: peer})
	return m.members.Promote(ctx, peer)
}

// titles are entries without content, which an assumed plan does not know.
func (r *record) titles() []string {
	var list []string
	for _, e := range r.inOrder() {
		title, _, _ := strings.Cut(e, "\n")
		list = append(list, title)
	}
	return list
}

// joinPlay is a node that will join, in two views: as its cluster has it, and as it is assumed when nobody is asked.
type joinPlay struct {
	known, assumed *config.Node
	host           host.Host
	live           cluster.Cluster
	etcd           *members
	workflow       []Phase
}

func (p *joinPlay) run(t *testing.T, n *config.Node, h host.Host, c cluster.Cluster, e etcd.Etcd, r *record) {
	t.Helper()
	env := &Env{Config: n, Host: h, Cluster: c, Etcd: e, UI: phaseUI{UI: quietUI(), record: r}}
	if err := Run(t.Context(), env, p.workflow, Options{Serial: true}); err != nil {
		t.Fatal(err)
	}
}

// compare plans twice, joins, and compares the three.
func (p *joinPlay) compare(t *testing.T) {
	t.Helper()
	plans := map[*config.Node]*record{p.known: {}, p.assumed: {}}
	for n, r := range plans {
		p.run(t, n, plan.NewOverlay(p.host, r.onHost), cluster.NewPlan(r.intended, nil), etcd.NewPlan(r.onEtcd), r)
	}
	done := &record{}
	p.run(t, p.known, plan.NewRecorder(p.host, done.onHost), cluster.NewPlan(done.intended, p.live), tellingMembers{p.etcd, done.onEtcd}, done)
	// The plan cannot know the other members of etcd.
	hidden := cmp.Transformer("", func(entry string) string {
		if strings.Contains(entry, "--initial-cluster=") {
			return strings.Split(entry, "\n")[0]
		}
		return entry
	})
	if diff := cmp.Diff(plans[p.known].inOrder(), done.inOrder(), cmp.FilterValues(func(a, b string) bool { return strings.Contains(a, "--initial-cluster=") }, hidden)); diff != "" {
		t.Errorf("the plan is not what the run did (-plan +run):\n%s", diff)
	}
	if diff := cmp.Diff(plans[p.assumed].titles(), done.titles()); diff != "" {
		t.Errorf("the plan that asks nobody differs (-plan +run):\n%s", diff)
	}
	if len(done.entries) < 8 {
		t.Errorf("only %d entries", len(done.entries))
	}
}

// assume returns the node that a plan assumes when it asks nobody.
func assume(t *testing.T, h host.Host, flags config.Flags, name string) *config.Node {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: name}}
	self, _, err := config.LoadJoin(nil, flags, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: h, UI: quietUI(), Options: opts, Connect: func([]byte) cluster.Cluster {
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

// byToken has the flags of a join whose cluster does not exist.
func byToken(name string, more config.Flags) config.Flags {
	more.Given = append(more.Given, "token", "discovery-token-unsafe-skip-ca-verification", "node-name", "cri-socket")
	more.Endpoint, more.Token, more.SkipCAVerification = "192.0.2.1:6443", fixture.Token, true
	more.NodeName, more.CRISocket = name, "unix:///run/containerd/containerd.sock"
	return more
}

func TestJoinPlanIsTrue(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, s *joinStage){
		"fresh":          func(*testing.T, *joinStage) {},
		"other kubelet":  func(t *testing.T, s *joinStage) { s.put(t, "/var/lib/kubelet/kubeadm-flags.env", "X=y\n") },
		"wide directory": func(t *testing.T, s *joinStage) { s.put(t, "/var/lib/kubelet/x", "") },
	} {
		t.Run("worker, "+name, func(t *testing.T) {
			s := newJoinStage(t)
			before(t, s)
			if err := s.discover(t); err != nil {
				t.Fatal(err)
			}
			s.host.Before = func(_ context.Context, order string) error {
				if order == "start "+kubeletUnit { // it gets its certificate once it runs
					s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
				}
				return nil
			}
			p := &joinPlay{known: s.Config, assumed: assume(t, s.host, byToken("worker-1", config.Flags{}), "worker-1"), host: s.host, live: s.api, etcd: &members{},
				workflow: []Phase{kubeletStartJoin(), kubeletWaitBootstrap()}}
			p.compare(t)
		})
	}
	t.Run("control plane", func(t *testing.T) {
		s := newPlaneStage(t, storedPlane)
		if err := s.discoverPlane(t, someKey); err != nil {
			t.Fatal(err)
		}
		flags := byToken("cp-2", config.Flags{Given: []string{"control-plane", "certificate-key", "apiserver-advertise-address"},
			ControlPlane: true, CertificateKey: someKey, APIServerAdvertiseAddress: "192.0.2.12"})
		p := &joinPlay{known: s.Config, assumed: assume(t, s.host, flags, "cp-2"), host: s.host, live: s.api(), etcd: s.etcd, workflow: joinPlane()}
		p.compare(t)
		s.put(t, etcdLog, logOf(9, 0, true))
		again := &record{}
		p.run(t, p.known, plan.NewOverlay(p.host, again.onHost), cluster.NewPlan(again.intended, nil), etcd.NewPlan(again.onEtcd, etcdmember.Known(p.host, p.known)...), again)
		if said := strings.Join(again.titles(), "\n"); strings.Contains(said, "etcd learner") || strings.Contains(said, "etcd member") || strings.Contains(said, "etcd.yaml") {
			t.Errorf("a plan for a control plane that has joined changes etcd:\n%s", said)
		}
	})
}

// TestAssumeGoesByWhatIsHere: the plan of a node that has joined has nothing to do.
func TestAssumeGoesByWhatIsHere(t *testing.T) {
	s := newJoinStage(t)
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin())
	s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
	flags := byToken("worker-1", config.Flags{})
	flags.Endpoint = "192.0.2.1:6443" // as kubelet.conf has it
	n := assume(t, s.host, flags, "worker-1")
	r := &record{}
	p := &joinPlay{workflow: []Phase{kubeletStartJoin(), kubeletWaitBootstrap()}}
	p.run(t, n, plan.NewOverlay(s.host, r.onHost), cluster.NewPlan(r.intended, nil), nil, r)
	var got []string
	for _, a := range r.host {
		got = append(got, a.String())
	}
	if diff := cmp.Diff([]string{"remove /etc/kubernetes/bootstrap-kubelet.conf"}, got); diff != "" {
		t.Errorf("a member is to do (-want +got):\n%s", diff)
	}
}
