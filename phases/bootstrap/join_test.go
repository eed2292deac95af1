// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

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
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestJoin(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.Play(t, kubelet.StartJoin())
	want := []string{"stop kubelet.service", "write kubeadm-flags.env", "write instance-config.yaml", "write config.yaml",
		"write ca.crt", "write bootstrap-kubelet.conf", "write kubelet.key", "write kubelet.crt", "reload", "start kubelet.service"}
	if diff := cmp.Diff(want, s.FakeHost.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	for path, mode := range map[string]fs.FileMode{"/etc/kubernetes/pki/ca.crt": 0o644, "/etc/kubernetes/bootstrap-kubelet.conf": 0o600, "/var/lib/kubelet/config.yaml": 0o600} {
		if info, err := os.Stat(filepath.Join(s.Root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	if got := s.Get(t, "/etc/kubernetes/pki/ca.crt"); got != string(certs.EncodeCerts(s.CA.Cert)) {
		t.Errorf("ca.crt is\n%s", got)
	}
	if conf := s.Get(t, "/etc/kubernetes/bootstrap-kubelet.conf"); !strings.Contains(conf, "token: "+fixture.Token) {
		t.Errorf("bootstrap-kubelet.conf is\n%s", conf)
	}
	if cfg := s.Get(t, "/var/lib/kubelet/config.yaml"); !strings.Contains(cfg, "maxPods: 17") || !strings.Contains(cfg, "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock") {
		t.Errorf("config.yaml is\n%s", cfg)
	}

	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	s.Play(t, kubelet.WaitBootstrap())
	if _, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes/bootstrap-kubelet.conf")); err == nil {
		t.Error("bootstrap-kubelet.conf is still there")
	}

	if err := s.API.Ensure(t.Context(), cluster.NewNode("worker-1")); err != nil {
		t.Fatal(err)
	}
	s.FakeHost.Jobs = []string{"start kubelet.service"}
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.Play(t, kubelet.StartJoin(), kubelet.WaitBootstrap())
	if len(s.FakeHost.Jobs) != 1 {
		t.Errorf("the second join did %v", s.FakeHost.Jobs[1:])
	}
	if strings.Contains(s.Said.String(), fixture.Token) {
		t.Errorf("the output has the token: %s", s.Said.String())
	}
}

// TestJoinAfterTheNodeWasDeleted: a running kubelet doesn't register its Node again, so join restarts it and waits for the Node.
func TestJoinAfterTheNodeWasDeleted(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	phasetest.Fatal(t, s.Discover(t))
	s.Play(t, kubelet.StartJoin())
	s.FakeHost.Jobs = []string{"start kubelet.service"}
	phasetest.Fatal(t, s.Discover(t))
	api := &phasetest.Marked{Plan: s.API}
	s.Cluster = api
	s.Play(t, kubelet.StartJoin(), kubelet.WaitBootstrap())
	if diff := cmp.Diff([]string{"start kubelet.service", "restart kubelet.service"}, s.FakeHost.Jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if api.Name != "worker-1" || api.Mark.Labels != nil {
		t.Errorf("waited for %q; said:\n%s", api.Name, s.Said.String())
	}
	s.SaidOnce(t, phasetest.Line{"Restarting", "kubelet", "Node", "deleted"})
	api.Err = errors.New("Node worker-1 is not registered")
	if err := step.Run(t.Context(), s.Env, []step.Phase{kubelet.WaitBootstrap()}, step.Options{}); !errors.Is(err, api.Err) {
		t.Errorf("error %q", phasetest.Message(err))
	}
}

// TestLeftovers: files from an earlier join to this cluster are accepted, another cluster's files aren't.
func TestLeftovers(t *testing.T) {
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	tests := []struct {
		name string
		make func(t *testing.T, s *phasetest.JoinStage, other fixture.Pair)
		want map[string]string // file: part of the reason
	}{
		{"nothing", func(*testing.T, *phasetest.JoinStage, fixture.Pair) {}, map[string]string{}},
		{"ours", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) {
			s.Bootstrapped(t, s.CA, "worker-1", later)
			s.Put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(s.CA.Cert)))
			s.Put(t, "/etc/kubernetes/bootstrap-kubelet.conf", fixture.Kubeconfig(s.CA, "token: abc"))
		}, map[string]string{}},
		{"ours, expired", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) {
			s.Bootstrapped(t, s.CA, "worker-1", earlier)
		}, map[string]string{}},
		{"ours, lost in a power cut", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) { s.Put(t, phasetest.KubeletConf, "") }, map[string]string{}},
		{"ours, its certificate lost in a power cut", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) {
			s.Put(t, phasetest.KubeletConf, fixture.Kubeconfig(s.CA, "client-certificate: "+phasetest.KubeletPEM))
			s.Put(t, phasetest.KubeletPEM, "")
		}, map[string]string{}},
		{"another name", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) { s.Bootstrapped(t, s.CA, "worker-9", later) },
			map[string]string{"kubelet.conf": `node "worker-9", not "worker-1"`}},
		{"another cluster", func(t *testing.T, s *phasetest.JoinStage, other fixture.Pair) {
			s.Bootstrapped(t, other, "worker-1", later)
			s.Put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(other.Cert)))
			s.Put(t, "/etc/kubernetes/bootstrap-kubelet.conf", fixture.Kubeconfig(other, "token: abc"))
		}, map[string]string{"kubelet.conf": "another cluster", "ca.crt": "another cluster", "bootstrap-kubelet.conf": "another cluster"}},
		{"garbage", func(t *testing.T, s *phasetest.JoinStage, _ fixture.Pair) {
			s.Put(t, "/etc/kubernetes/pki/ca.crt", "x")
			s.Put(t, "/etc/kubernetes/kubelet.conf", "x")
		}, map[string]string{"kubelet.conf": "kubeconfig", "ca.crt": "PEM"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			if err := s.Discover(t); err != nil {
				t.Fatal(err)
			}
			tt.make(t, s, fixture.Signed(t, fixture.Pair{}, "kubernetes", later))
			for _, l := range leftovers(s.Env) {
				data, err := s.FakeHost.ReadFile(l.Path)
				if err != nil {
					continue
				}
				got, want := phasetest.Message(l.Foreign(data)), tt.want[filepath.Base(l.Path)]
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", l.Path, got, want)
				}
			}
		})
	}
}

// TestWaitBootstrapGivesUp: join doesn't wait for a kubelet that can't run.
func TestWaitBootstrapGivesUp(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	if err := s.Discover(t); err != nil {
		t.Fatal(err)
	}
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "exit-code"}
	started := time.Now()
	err := step.Run(t.Context(), s.Env, []step.Phase{kubelet.WaitBootstrap()}, step.Options{})
	fact.Error(t, err, "no certificate", "unit kubelet.service", "failed")
	if time.Since(started) > 2*time.Minute {
		t.Error("it waited")
	}
}
