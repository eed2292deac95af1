// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// EtcdRestart is a workflow that restarts this control plane's etcd and nothing else. Refuses reports whether an error says that
// the others need this member.
type EtcdRestart struct {
	Name    string
	Init    func() []step.Phase
	Run     func(*testing.T, *Stage) error
	Refuses func(error) bool
}

// OnlyEtcdStale is a control plane with changes only to etcd's files: the other containers are newer than all their files.
func OnlyEtcdStale(t *testing.T, init []step.Phase) *Stage {
	t.Helper()
	s := RestartStage(t, init)
	s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.Components(s.Config)...)
	s.FakeHost.Runs(time.Time{}, manifests.EtcdName)
	s.Config.Timeouts.EtcdAPICall = time.Millisecond
	s.Config.Upgrade = &config.Upgrade{Etcd: true}
	s.Etcd = &FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: OwnPeer}}}
	s.FakeHost.Jobs = nil
	// Containers restarted by the kubelet are new.
	s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		s.FakeHost.Runs(time.Now().Add(2*time.Hour), id)
		return nil
	}
	return s
}

// TakesAPIServerAlong: the API server goes down before etcd and comes back with it, whatever has changed. Its static Pod isn't
// written.
func (r EtcdRestart) TakesAPIServerAlong(t *testing.T) {
	s := OnlyEtcdStale(t, r.Init())
	Fatal(t, r.Run(t, s))
	if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != "kube-apiserver etcd" {
		t.Errorf("stopped %q", got)
	}
	if slices.Contains(s.FakeHost.Did("write"), "kube-apiserver.yaml") {
		t.Error("the API server's static Pod was written")
	}
	if r.Name == "renewal" {
		return
	}
	// The old kubelet would start the API server before etcd has stopped.
	orders := slices.DeleteFunc(s.FakeHost.Orders(), func(o string) bool { return strings.HasPrefix(o, "remove exited ") })
	want := []string{"kill kubelet.service", "stop container kube-apiserver", "stop container etcd", "restart kubelet.service"}
	if len(orders) < len(want) || !slices.Equal(orders[:len(want)], want) {
		t.Errorf("did %q, want %q", orders, want)
	}
}

// AwaitsAPIServer: the run fails if an API server that went down with etcd doesn't come back.
func (r EtcdRestart) AwaitsAPIServer(t *testing.T) {
	s := OnlyEtcdStale(t, r.Init())
	s.Config.Timeouts.UpgradeManifests, s.Config.Timeouts.ControlPlaneComponentHealthCheck = 100*time.Millisecond, 100*time.Millisecond
	s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
		if id == manifests.EtcdName {
			s.FakeHost.Runs(time.Now().Add(2*time.Hour), id)
		} else {
			delete(s.FakeHost.Has.Running, id)
		}
		return nil
	}
	fact.Error(t, r.Run(t, s), manifests.APIServerName)
}

// SparesEtcd: no workflow stops an etcd member the others need, and a member that works for nobody may always be restarted. The
// Lease is free afterwards, because nothing was stopped.
func (r EtcdRestart) SparesEtcd(t *testing.T) {
	down := errors.New("connection refused")
	// deaf is an etcd that serves no clients, but tells its peers about its members. cp3 is why the third doesn't work.
	deaf := func(members int, cp3 error) Voters {
		three := []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: OwnPeer}, {ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}, {ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"}}
		return Voters{FakeMembers: FakeMembers{List: three[:members], Down: map[string]error{"cp-1": down, "cp-3": cp3}, Fail: map[string]error{"health": down}, TellsPeers: true}}
	}
	for name, row := range map[string]struct {
		etcd    Voters
		stopped bool // etcd's container, before the run
		ignore  string
		stops   bool
	}{
		"all work":                            {Voters{}, false, "", true},
		"another is down":                     {Voters{Cp3: down}, false, "", false},
		"another is down, and that's ignored": {Voters{Cp3: down}, false, "etcdquorum", true},
		"another is down, and all's ignored":  {Voters{Cp3: down}, false, "all", false},
		"nobody can be asked":                 {Voters{FakeMembers: FakeMembers{Fail: map[string]error{"health": down}}}, false, "", false},
		"serves no clients, alone":            {deaf(1, nil), false, "", true},
		"serves no clients, others work":      {deaf(3, nil), false, "", true},
		"serves no clients, another is down":  {deaf(3, down), false, "", false},
		"this one does not run":               {Voters{Own: down, Cp3: down}, true, "", true},
		"this one does not answer":            {Voters{Own: down, Cp3: down}, false, "", false},
		"this one has no leader":              {Voters{Own: down, Cp2: down, Cp3: down, Leaderless: true}, false, "", true},
	} {
		t.Run(name+", "+r.Name, func(t *testing.T) {
			if row.stopped && r.Name == "renewal" {
				t.Skip("the kubelet starts it, so a renewal restarts nothing")
			}
			s := OnlyEtcdStale(t, r.Init())
			s.Config.Timeouts.UpgradeManifests = 5 * time.Second
			known := row.etcd
			s.Etcd = &known
			if row.ignore != "" {
				s.Config.IgnorePreflightErrors = []string{row.ignore}
			}
			if row.stopped {
				delete(s.FakeHost.Has.Running, manifests.EtcdName)
				s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
					host.RestartUnit: func(context.Context, string) error { //nolint:unparam // the signature of an order
						s.FakeHost.Runs(time.Now().Add(2*time.Hour), manifests.EtcdName)
						return nil
					},
				}
			}
			err := r.Run(t, s)
			if stopped := slices.Contains(s.FakeHost.Did("stop container"), manifests.APIServerName); stopped != row.stops {
				t.Errorf("stopped %q: %v", s.FakeHost.Did("stop container"), err)
			}
			if row.stops {
				Fatal(t, err)
			} else if !r.Refuses(err) {
				t.Errorf("error %v", err)
			}
			if holder := s.Holder(t); holder != "" {
				t.Errorf("%s keeps the Lease", holder)
			}
		})
	}
}

// ControlPlaneStage has the certificates and kubeconfig files of a control plane.
func ControlPlaneStage(t *testing.T, init []step.Phase) *Stage {
	t.Helper()
	s := NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, Pick(init, "certs", "kubeconfig")...)
	return s
}

// RestartStage is a control plane whose components all have old containers.
func RestartStage(t *testing.T, init []step.Phase) *Stage {
	t.Helper()
	s := ControlPlaneStage(t, init)
	s.Play(t, Pick(init, "etcd", "control-plane")...)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Certified(t, "cp-1")
	s.Play(t, Pick(init, "kubelet-finalize")...)
	s.FakeHost.Runs(time.Time{}, manifests.Components(s.Config)...)
	return s
}

// TurnsAPI is a cluster whose API may be away, with the tests' Nodes and kubelet.
type TurnsAPI struct {
	cluster.Cluster
	Away  func() bool
	Known []corev1.Node
	// KubeletPods returns the kubelet's Pods, each time it's asked.
	KubeletPods func() []corev1.Pod
}

func (a TurnsAPI) Ready(context.Context) error {
	if a.Away != nil && a.Away() {
		return errors.New("connection refused")
	}
	return nil
}

func (a TurnsAPI) Nodes(context.Context) ([]corev1.Node, error) { return a.Known, nil }

func (a TurnsAPI) AwaitNode(ctx context.Context, name string, check func(*corev1.Node, []corev1.Pod) error) error {
	object := cluster.NewNode(name)
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for {
		err := check(object, nil)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a TurnsAPI) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	if q.Path != "/api/v1/nodes/cp-1/proxy/pods" {
		return errors.New(q.Path)
	}
	data, err := json.Marshal(corev1.PodList{Items: a.KubeletPods()})
	if err != nil {
		return err
	}
	return take(strings.NewReader(string(data)))
}

// TurnOfInterruptedRun: the Lease of a run killed after its last restart goes back with the next run, which has nothing to
// restart. Nobody else's does.
func TurnOfInterruptedRun(t *testing.T, init []step.Phase, own string, run func(*Stage) error) {
	for purpose, left := range map[string]string{"upgrade": "cp-1", "rollback": "cp-1", own: ""} {
		t.Run(own+" after "+purpose, func(t *testing.T) {
			s := OnlyEtcdStale(t, init)
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.EtcdName)
			s.FakeHost.Has.Units[theKubelet] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
			s.HoldsFor(t, "cp-1", purpose, 0)
			Fatal(t, run(s))
			if holder := s.Holder(t); holder != left || len(s.FakeHost.Did("stop container")) > 0 {
				t.Errorf("the Lease has %q; did %q", holder, s.FakeHost.Orders())
			}
		})
	}
}
