// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// planeOfPods is a control plane with nothing but its static Pods.
func planeOfPods(t *testing.T) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	view, err := HostView(s.Env)
	phasetest.Fatal(t, err)
	for _, name := range manifests.Components(s.Config) {
		data, err := StaticPodYAML(s.Env, name, view, nil)
		phasetest.Fatal(t, err)
		s.Put(t, s.Config.Paths.StaticPod(name), string(data))
	}
	return s
}

// revived is a kubelet that systemd restarts some time after it's killed.
type revived struct {
	after   time.Duration
	mu      sync.Mutex
	stopped time.Time
	starts  int
}

func (r *revived) unit(context.Context, string) (host.UnitState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := time.Since(r.stopped); since < r.after {
		return host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart"}, nil
	}
	return host.UnitState{LoadState: "loaded", ActiveState: "active", MainPID: 1}, nil
}

func (r *revived) order(_ context.Context, what string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what == "kill kubelet.service" && time.Since(r.stopped) >= r.after {
		r.stopped = time.Now()
		r.starts++
	}
	return nil
}

// TestKubeletStaysDown: while an API server with --shutdown-delay-duration, or a slow etcd, stops, no kubelet lives long enough
// to start the API server again, although systemd restarts killed kubelets. systemd sees no more starts than it allows by
// default, five in ten seconds.
func TestKubeletStaysDown(t *testing.T) {
	for name, after := range map[string]time.Duration{"as in our unit": 10 * time.Second, "as in an unusual one": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := planeOfPods(t)
			s.FakeHost.Runs(time.Now().Add(time.Hour), manifests.Components(s.Config)...)
			s.Config.Timeouts.EtcdAPICall = time.Millisecond
			s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
			synctest.Test(t, func(t *testing.T) {
				kubelet := &revived{after: after, stopped: time.Now().Add(-time.Hour)}
				s.FakeHost.On.Unit = kubelet.unit
				s.FakeHost.Before = kubelet.order
				stopping := func(ctx context.Context, id string) {
					for up, i := 0, 0; i < 280; i++ {
						time.Sleep(100 * time.Millisecond)
						if unit, _ := kubelet.unit(ctx, KubeletUnit); unit.MainPID == 0 {
							up = 0
						} else if up++; up > 5 && after > time.Second {
							t.Errorf("while %s stops, a kubelet has been up for half a second", id)
							return
						}
					}
				}
				s.FakeHost.On.StopContainer = func(ctx context.Context, _, id string, _ time.Duration) error {
					stopping(ctx, id)
					return nil
				}
				before := time.Now()
				was, wanted := s.Patched(t)
				_, err := stopStaticPods(t.Context(), s.Env, Lease{}, []Replacement{{Name: manifests.EtcdName, Before: was, Wanted: wanted}}, nextKubelet)
				phasetest.Fatal(t, err)
				if limit := 4 * int(time.Since(before)/(10*time.Second)+1); kubelet.starts > limit {
					t.Errorf("systemd has started it %d times in %s", kubelet.starts, time.Since(before))
				}
				starts := kubelet.starts
				time.Sleep(time.Minute)
				if kubelet.starts != starts {
					t.Error("the kubelet is killed after the components have stopped")
				}
				if got := s.FakeHost.Did("stop container"); len(got) != 2 || got[1] != manifests.EtcdName {
					t.Errorf("stopped %q", got)
				}
			})
		})
	}
}
