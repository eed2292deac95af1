// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestSlowProbes: where components get longer to start, their probes may also take longer.
func TestSlowProbes(t *testing.T) {
	for name, look := range map[string]func(context.Context, *phasetest.Stage) bool{
		"on trial": func(ctx context.Context, s *phasetest.Stage) bool {
			s.Config.ControlPlane, s.Cluster = false, &phasetest.Marked{}
			return node.Lease{}.AwaitStable(ctx, s.Env) == nil
		},
		"unprovable": func(ctx context.Context, s *phasetest.Stage) bool {
			return len(node.UnprovableComponents(ctx, s.Env)) == 0
		},
	} {
		for limit, want := range map[time.Duration]bool{5 * time.Minute: false, 45 * time.Minute: true} {
			t.Run(name+" "+limit.String(), func(t *testing.T) {
				s := phasetest.PlaneToUpgrade(t)
				s.Config.Timeouts.UpgradeManifests = limit
				s.FakeHost.On.Fetch = func(ctx context.Context, _ host.Probe) ([]byte, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(20 * time.Second):
						return nil, nil
					}
				}
				synctest.Test(t, func(t *testing.T) {
					if got := look(t.Context(), s); got != want {
						t.Errorf("%v, want %v", got, want)
					}
				})
			})
		}
	}
}

// TestUnprovableComponents: a component whose probe can't show its health is found while it still runs. One that's down isn't.
func TestUnprovableComponents(t *testing.T) {
	const scheduler = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	probed := func(t *testing.T, s *phasetest.Stage, probe *corev1.Probe) {
		pod, err := manifests.DecodePod([]byte(s.Get(t, scheduler)))
		phasetest.Fatal(t, err)
		pod.Spec.Containers[0].LivenessProbe = probe
		data, err := manifests.Encode(pod)
		phasetest.Fatal(t, err)
		s.Put(t, scheduler, string(data))
	}
	answers := func(path string, err error) func(*testing.T, *phasetest.Stage) {
		return func(_ *testing.T, s *phasetest.Stage) {
			s.FakeHost.On.Fetch = func(_ context.Context, p host.Probe) ([]byte, error) {
				if strings.HasSuffix(p.URL, path) {
					return nil, err
				}
				return nil, nil
			}
		}
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *phasetest.Stage)
		want   []phasetest.FoundAs
	}{
		"healthy":      {change: answers("", nil)},
		"down":         {change: answers("", errors.New("connection refused"))},
		"not ready":    {change: answers(":6443/livez", &host.ProbeError{Status: 500})},
		"unauthorized": {answers(":6443/livez", &host.ProbeError{Status: 401}), []phasetest.FoundAs{{Name: "error ComponentProbe", Facts: []string{"kube-apiserver"}}}},
		"forbidden":    {answers(":10259/livez", &host.ProbeError{Status: 403}), []phasetest.FoundAs{{Name: "error ComponentProbe", Facts: []string{"kube-scheduler"}}}},
		"redirected":   {answers(":10259/livez", &host.ProbeError{Status: 302}), []phasetest.FoundAs{{Name: "error ComponentProbe", Facts: []string{"kube-scheduler", "302"}}}},
		"no such path": {change: answers(":10259/livez", &host.ProbeError{Status: 404})}, // for the kubelet, it's down, too
		"no probe": {
			func(t *testing.T, s *phasetest.Stage) { probed(t, s, nil) },
			[]phasetest.FoundAs{{Name: "error ComponentProbe", Facts: []string{"kube-scheduler", scheduler}}},
		},
		"a program": {func(t *testing.T, s *phasetest.Stage) {
			probed(t, s, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/probe"}}}})
		}, []phasetest.FoundAs{{Name: "error ComponentProbe", Facts: []string{"kube-scheduler", scheduler}}}},
		"no Pod": {
			func(t *testing.T, s *phasetest.Stage) { s.Put(t, scheduler, "a: [") },
			[]phasetest.FoundAs{{Name: "unchecked ComponentProbe", Facts: []string{"kube-scheduler", scheduler}}},
		},
		"a plan": {
			func(_ *testing.T, s *phasetest.Stage) { s.Host = plan.NewOverlay(s.FakeHost, func(host.Action) {}) },
			[]phasetest.FoundAs{{Name: "unchecked ComponentProbe"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			test.change(t, s)
			phasetest.CheckFindings(t, node.UnprovableComponents(t.Context(), s.Env), test.want...)
		})
	}
}
