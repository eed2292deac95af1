// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestRestartOrder: the API server stops before etcd, which would wait for its watches; components that need the API come last.
// Nobody waits for watches of the API server, and the kubelet finds no earlier container to count as a crash.
func TestRestartOrder(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	grace := s.Graces()
	for _, c := range manifests.Components(s.Config) {
		s.FakeHost.Fail["remove exited "+c] = errors.New("the runtime is busy") // this only costs time
	}
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	if err := step.Run(t.Context(), s.Env, Certificates(Options{Restart: true}), step.Options{}); err != nil {
		t.Fatal(err)
	}
	const want = "kube-apiserver etcd kube-scheduler kube-controller-manager"
	if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != want {
		t.Errorf("stopped %q, want %q", got, want)
	}
	if got := strings.Join(s.FakeHost.Did("remove exited"), " "); got != want {
		t.Errorf("removed what was left of %q, want %q", got, want)
	}
	if grace["kube-apiserver"] != 2*time.Second || grace["etcd"] != 30*time.Second {
		t.Errorf("grace periods %v", grace)
	}
}

// TestRestartLetsTheAPIServerDrain: an API server told to stop isn't killed while it's configured to keep serving.
func TestRestartLetsTheAPIServerDrain(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	grace := s.Graces()
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	const path = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	const last = "    - --secure-port=6443\n"
	before := s.Get(t, path)
	after := strings.Replace(before, last, last+"    - --shutdown-delay-duration=20s\n", 1)
	if after == before {
		t.Fatalf("no %q in\n%s", last, before)
	}
	s.Put(t, path, after)
	if err := step.Run(t.Context(), s.Env, Certificates(Options{Restart: true}), step.Options{}); err != nil {
		t.Fatal(err)
	}
	if grace["kube-apiserver"] != 30*time.Second {
		t.Errorf("grace period %s", grace["kube-apiserver"])
	}
}

// TestRestartDoesNotWaitForBackOff of a component that crashed with its old certificate, and spares a kubelet started since.
func TestRestartDoesNotWaitForBackOff(t *testing.T) {
	const restart = "restart kubelet.service"
	for started, want := range map[time.Duration]string{-time.Hour: restart, time.Hour: ""} {
		s := phasetest.RestartStage(t, bootstrap.Init())
		s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
		delete(s.FakeHost.Has.Running, "kube-apiserver")
		s.FakeHost.Before = func(_ context.Context, order string) error {
			if order == restart { // then it starts again
				s.FakeHost.Runs(time.Now().Add(time.Second), "kube-apiserver")
			}
			return nil
		}
		s.FakeHost.Jobs = nil
		s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: time.Now().Add(started)}
		if err := resetRestartBackOff(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.FakeHost.Jobs, " "); got != want {
			t.Errorf("with a kubelet that started at %s: %q, want %q", started, got, want)
		}
	}
}

// TestRestartLeavesEtcdRunning while its peers aren't healthy. Components that don't depend on it restart, and the run fails.
func TestRestartLeavesEtcdRunning(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	peers := &phasetest.FakeMembers{
		List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}},
		Down: map[string]error{"cp-2": errors.New("connection refused")},
	}
	impatient := *s.Config
	impatient.Timeouts.EtcdAPICall = time.Millisecond
	s.Config, s.Etcd = &impatient, peers

	err := step.Run(t.Context(), s.Env, Certificates(Options{Restart: true}), step.Options{})
	fact.Error(t, err, "phase etcd:", "not restarted", "cp-2 does not (connection refused)")
	fact.In(t, fault.Remedy(err), "`slipway certs renew etcd-server --restart`")
	if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != "kube-apiserver kube-scheduler kube-controller-manager" {
		t.Errorf("stopped %q", got)
	}

	peers.Down, peers.Fail = nil, map[string]error{"health": errors.New("no member answers")}
	if err := restartEtcdLate(t.Context(), s.Env); !errors.Is(err, peers.Fail["health"]) {
		t.Errorf("with members that cannot be listed: %v", err)
	}

	s.FakeHost.Jobs, peers.Fail = nil, nil
	for range 2 { // they're healthy now
		if err := restartEtcdLate(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != "kube-apiserver etcd" {
		t.Errorf("stopped %q", got)
	}
}
