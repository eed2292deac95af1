// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// joinStage is a host that will join a cluster by a discovery file, and what that cluster's API has.
type joinStage struct {
	*stage
	ca     fixture.Pair
	api    *cluster.Plan
	warned []string // by the discovery
}

func newJoinStage(t *testing.T, objs ...cluster.Object) *joinStage {
	t.Helper()
	s := &joinStage{stage: newStage(t, fixture.InitDocument+fixture.ClusterDocument), ca: fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour))}
	s.api = fixture.API(t, objs...)
	s.put(t, "/discovery.conf", fixture.Kubeconfig(s.ca, ""))
	return s
}

// discover loads the desired state of the node.
func (s *joinStage) discover(t *testing.T) error {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: "worker-1"}}
	self, _, err := config.LoadJoin(nil, fixture.DiscoveryFlags("worker-1"), opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: s.host, UI: s.UI, Options: opts, Connect: func([]byte) cluster.Cluster { return s.api }}
	n, warnings, err := d.Node(t.Context(), self)
	if s.warned = warnings; err == nil {
		s.Config = n
	}
	return err
}

// bootstrapped does what the kubelet does once its certificate is signed.
func (s *joinStage) bootstrapped(t *testing.T, ca fixture.Pair, name string, until time.Time) {
	t.Helper()
	fixture.BootstrapKubelet(t, s.root, ca, name, until)
}

func TestJoin(t *testing.T) {
	s := newJoinStage(t)
	s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin())
	want := []string{"stop kubelet.service", "write kubeadm-flags.env", "write instance-config.yaml", "write config.yaml",
		"write ca.crt", "write bootstrap-kubelet.conf", "write kubelet.key", "write kubelet.crt", "reload", "start kubelet.service"}
	if diff := cmp.Diff(want, s.host.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	for path, mode := range map[string]fs.FileMode{"/etc/kubernetes/pki/ca.crt": 0o644, "/etc/kubernetes/bootstrap-kubelet.conf": 0o600, "/var/lib/kubelet/config.yaml": 0o600} {
		if info, err := os.Stat(filepath.Join(s.root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	if got := s.get(t, "/etc/kubernetes/pki/ca.crt"); got != string(certs.EncodeCerts(s.ca.Cert)) {
		t.Errorf("ca.crt is\n%s", got)
	}
	if conf := s.get(t, "/etc/kubernetes/bootstrap-kubelet.conf"); !strings.Contains(conf, "token: "+fixture.Token) {
		t.Errorf("bootstrap-kubelet.conf is\n%s", conf)
	}
	if cfg := s.get(t, "/var/lib/kubelet/config.yaml"); !strings.Contains(cfg, "maxPods: 17") || !strings.Contains(cfg, "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock") {
		t.Errorf("config.yaml is\n%s", cfg)
	}

	s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
	s.play(t, kubeletWaitBootstrap())
	if _, err := os.Stat(filepath.Join(s.root, "/etc/kubernetes/bootstrap-kubelet.conf")); err == nil {
		t.Error("bootstrap-kubelet.conf is still there")
	}

	if err := s.api.Ensure(t.Context(), cluster.NewNode("worker-1")); err != nil {
		t.Fatal(err)
	}
	s.host.Jobs = []string{"start kubelet.service"}
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin(), kubeletWaitBootstrap())
	if len(s.host.Jobs) != 1 {
		t.Errorf("the second join did %v", s.host.Jobs[1:])
	}
	if strings.Contains(s.said.String(), fixture.Token) {
		t.Errorf("the output has the token: %s", s.said.String())
	}
}

// TestJoinAfterTheNodeWasDeleted: a running kubelet does not register its Node again, so join restarts it and waits
// for the Node.
func TestJoinAfterTheNodeWasDeleted(t *testing.T) {
	s := newJoinStage(t)
	s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
	fatal(t, s.discover(t))
	s.play(t, kubeletStartJoin())
	s.host.Jobs = []string{"start kubelet.service"}
	fatal(t, s.discover(t))
	api := &marked{Plan: s.api}
	s.Cluster = api
	s.play(t, kubeletStartJoin(), kubeletWaitBootstrap())
	if diff := cmp.Diff([]string{"start kubelet.service", "restart kubelet.service"}, s.host.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if api.name != "worker-1" || api.mark.Labels != nil {
		t.Errorf("waited for %q; said:\n%s", api.name, s.said.String())
	}
	s.saidOnce(t, line{"Restarting", "kubelet", "Node", "deleted"})
	api.err = errors.New("Node worker-1 is not registered")
	if err := Run(t.Context(), s.Env, []Phase{kubeletWaitBootstrap()}, Options{}); !errors.Is(err, api.err) {
		t.Errorf("error %q", message(err))
	}
}

// TestLeftovers: files of an earlier join to this cluster are accepted, files of another cluster are not.
func TestLeftovers(t *testing.T) {
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	tests := []struct {
		name string
		make func(t *testing.T, s *joinStage, other fixture.Pair)
		want map[string]string // file: part of the reason
	}{
		{"nothing", func(*testing.T, *joinStage, fixture.Pair) {}, map[string]string{}},
		{"ours", func(t *testing.T, s *joinStage, _ fixture.Pair) {
			s.bootstrapped(t, s.ca, "worker-1", later)
			s.put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(s.ca.Cert)))
			s.put(t, "/etc/kubernetes/bootstrap-kubelet.conf", fixture.Kubeconfig(s.ca, "token: abc"))
		}, map[string]string{}},
		{"ours, expired", func(t *testing.T, s *joinStage, _ fixture.Pair) { s.bootstrapped(t, s.ca, "worker-1", earlier) }, map[string]string{}},
		{"another name", func(t *testing.T, s *joinStage, _ fixture.Pair) { s.bootstrapped(t, s.ca, "worker-9", later) },
			map[string]string{"kubelet.conf": `node "worker-9", not "worker-1"`}},
		{"another cluster", func(t *testing.T, s *joinStage, other fixture.Pair) {
			s.bootstrapped(t, other, "worker-1", later)
			s.put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(other.Cert)))
			s.put(t, "/etc/kubernetes/bootstrap-kubelet.conf", fixture.Kubeconfig(other, "token: abc"))
		}, map[string]string{"kubelet.conf": "another cluster", "ca.crt": "another cluster", "bootstrap-kubelet.conf": "another cluster"}},
		{"garbage", func(t *testing.T, s *joinStage, _ fixture.Pair) {
			s.put(t, "/etc/kubernetes/pki/ca.crt", "x")
			s.put(t, "/etc/kubernetes/kubelet.conf", "x")
		}, map[string]string{"kubelet.conf": "kubeconfig", "ca.crt": "PEM"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newJoinStage(t)
			if err := s.discover(t); err != nil {
				t.Fatal(err)
			}
			tt.make(t, s, fixture.Signed(t, fixture.Pair{}, "kubernetes", later))
			for _, l := range leftovers(s.Env) {
				data, err := s.host.ReadFile(l.Path)
				if err != nil {
					continue
				}
				got, want := message(l.Foreign(data)), tt.want[filepath.Base(l.Path)]
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", l.Path, got, want)
				}
			}
		})
	}
}

// TestWaitBootstrapGivesUp: join does not wait for a kubelet that cannot run.
func TestWaitBootstrapGivesUp(t *testing.T) {
	s := newJoinStage(t)
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "exit-code"}
	started := time.Now()
	err := Run(t.Context(), s.Env, []Phase{kubeletWaitBootstrap()}, Options{})
	fact.Error(t, err, "no certificate", "unit kubelet.service", "failed")
	if time.Since(started) > 2*time.Minute {
		t.Error("it waited")
	}
}
