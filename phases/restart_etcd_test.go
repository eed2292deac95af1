// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

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
	"github.com/slipway-k8s/slipway/test/fact"
)

// restartStage is a control plane whose components all have old containers.
func restartStage(t *testing.T, init []Phase) *stage {
	t.Helper()
	s := controlPlaneStage(t, init)
	s.play(t, pick(init, "etcd", "control-plane")...)
	s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.certified(t, "cp-1")
	s.play(t, pick(init, "kubelet-finalize")...)
	s.host.Runs(time.Time{}, manifests.Components(s.Config)...)
	return s
}

// graces has the time that each container gets to stop.
func (s *stage) graces() map[string]time.Duration {
	grace := map[string]time.Duration{}
	s.host.On.StopContainer = func(_ context.Context, _, id string, given time.Duration) error {
		grace[id] = given
		s.host.Runs(time.Now().Add(time.Second), id)
		return nil
	}
	return grace
}

// ownPeer is the URL at which other members find the stage's etcd.
const ownPeer = "https://192.0.2.11:2380"

func TestOthersSuffice(t *testing.T) {
	dead := errors.New("connection refused")
	member := func(name, peer string, fault error) etcd.Health {
		return etcd.Health{Member: etcd.Member{Name: name, PeerURL: peer}, Err: fault}
	}
	own := member("cp-1", ownPeer, nil)
	for name, tt := range map[string]struct {
		health []etcd.Health
		want   []string
	}{
		"alone":                          {[]etcd.Health{own}, nil},
		"all healthy":                    {[]etcd.Health{own, member("b", "b", nil), member("c", "c", nil)}, nil},
		"two, one dead":                  {[]etcd.Health{own, member("b", "b", dead)}, []string{"2 members", "2 besides", "none works; b", "(connection refused)"}},
		"three, one dead":                {[]etcd.Health{own, member("b", "b", dead), member("c", "c", nil)}, []string{"3 members", "2 besides", "c works; b", "(connection refused)"}},
		"one that has no name yet":       {[]etcd.Health{own, member("", "https://b:2380", dead)}, []string{"none works; https://b:2380"}},
		"five, one dead":                 {[]etcd.Health{own, member("b", "b", dead), member("c", "c", nil), member("d", "d", nil), member("e", "e", nil)}, nil},
		"a learner that is dead":         {[]etcd.Health{own, {Member: etcd.Member{Name: "b", Learner: true}, Err: dead}}, nil},
		"which is this one is not known": {[]etcd.Health{member("a", "a", nil), member("b", "b", nil), member("c", "c", dead)}, []string{"voting member", ownPeer}},
		"a learner itself":               {[]etcd.Health{{Member: etcd.Member{Name: "cp-1", PeerURL: ownPeer, Learner: true}}, member("b", "b", nil), member("c", "c", dead)}, nil},
		"this one is ill":                {[]etcd.Health{member("cp-1", ownPeer, dead), member("b", "b", nil), member("c", "c", nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fact.Error(t, othersSuffice(tt.health, ownPeer), tt.want...)
		})
	}
}

// TestRestartOrder: the API server stops before etcd, which would wait for its watches. What needs the API comes last.
// Nobody waits for watches of the API server, and the kubelet finds no earlier container to count as a crash.
func TestRestartOrder(t *testing.T) {
	s := restartStage(t, Init())
	grace := s.graces()
	for _, c := range manifests.Components(s.Config) {
		s.host.Fail["remove exited "+c] = errors.New("the runtime is busy") // this only costs time
	}
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	if err := Run(t.Context(), s.Env, Renew(RenewOptions{Restart: true}), Options{}); err != nil {
		t.Fatal(err)
	}
	const want = "kube-apiserver etcd kube-scheduler kube-controller-manager"
	if got := strings.Join(s.host.Did("stop container"), " "); got != want {
		t.Errorf("stopped %q, want %q", got, want)
	}
	if got := strings.Join(s.host.Did("remove exited"), " "); got != want {
		t.Errorf("removed what was left of %q, want %q", got, want)
	}
	if grace["kube-apiserver"] != 2*time.Second || grace["etcd"] != 30*time.Second {
		t.Errorf("grace periods %v", grace)
	}
}

// TestRestartLetsTheAPIServerDrain: an API server that is configured to keep serving after it is told to stop is not
// killed before that time is over.
func TestRestartLetsTheAPIServerDrain(t *testing.T) {
	s := restartStage(t, Init())
	grace := s.graces()
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	const path = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	const last = "    - --secure-port=6443\n"
	before := s.get(t, path)
	after := strings.Replace(before, last, last+"    - --shutdown-delay-duration=20s\n", 1)
	if after == before {
		t.Fatalf("no %q in\n%s", last, before)
	}
	s.put(t, path, after)
	if err := Run(t.Context(), s.Env, Renew(RenewOptions{Restart: true}), Options{}); err != nil {
		t.Fatal(err)
	}
	if grace["kube-apiserver"] != 30*time.Second {
		t.Errorf("grace period %s", grace["kube-apiserver"])
	}
}

// TestRestartDoesNotWaitForBackOff of a component that crashed with its old certificate. It does not restart a kubelet
// that was started since.
func TestRestartDoesNotWaitForBackOff(t *testing.T) {
	const restart = "restart kubelet.service"
	for started, want := range map[time.Duration]string{-time.Hour: restart, time.Hour: ""} {
		s := restartStage(t, Init())
		s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
		delete(s.host.Has.Running, "kube-apiserver")
		s.host.Before = func(_ context.Context, order string) error {
			if order == restart { // then it starts again
				s.host.Runs(time.Now().Add(time.Second), "kube-apiserver")
			}
			return nil
		}
		s.host.Jobs = nil
		s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: time.Now().Add(started)}
		if err := endBackOff(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.host.Jobs, " "); got != want {
			t.Errorf("with a kubelet that started at %s: %q, want %q", started, got, want)
		}
	}
}

// TestRestartLeavesEtcdRunning while its peers are not healthy. What does not depend on it is restarted, and the run
// fails.
func TestRestartLeavesEtcdRunning(t *testing.T) {
	s := restartStage(t, Init())
	peers := &members{
		list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}},
		down: map[string]error{"cp-2": errors.New("connection refused")},
	}
	impatient := *s.Config
	impatient.Timeouts.EtcdAPICall = time.Millisecond
	s.Config, s.Etcd = &impatient, peers

	err := Run(t.Context(), s.Env, Renew(RenewOptions{Restart: true}), Options{})
	fact.Error(t, err, "phase etcd:", "not restarted", "cp-2 does not (connection refused)")
	fact.In(t, fault.Remedy(err), "`slipway certs renew etcd-server --restart`")
	if got := strings.Join(s.host.Did("stop container"), " "); got != "kube-apiserver kube-scheduler kube-controller-manager" {
		t.Errorf("stopped %q", got)
	}

	peers.down, peers.fail = nil, map[string]error{"health": errors.New("no member answers")}
	if err := restartEtcdLate(t.Context(), s.Env); !errors.Is(err, peers.fail["health"]) {
		t.Errorf("with members that cannot be listed: %v", err)
	}

	s.host.Jobs, peers.fail = nil, nil
	for range 2 { // they are healthy now
		if err := restartEtcdLate(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(s.host.Did("stop container"), " "); got != "kube-apiserver etcd" {
		t.Errorf("stopped %q", got)
	}
}
