// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// patchedInit is the host of a complete cluster whose static Pods were made with patches, and whose kubelet doesn't rotate its
// certificate, so kubelet.conf is unchanged.
func patchedInit(t *testing.T) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.PatchesDir = "/patches"
	s.Put(t, "/patches/kube-apiserver0+json.json",
		`[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--encryption-provider-config=/etc/enc.yaml"}]`)
	s.Put(t, "/patches/etcd+json.json", `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--quota-backend-bytes=1"}]`)
	s.Play(t, filePhases()...)
	needsNotes(t, s)
	s.Play(t, node.UploadConfig())
	s.Put(t, "/var/lib/etcd/member/wal/0.wal", "")
	s.FakeHost.Runs(s.FakeHost.Now(), "etcd", "kube-apiserver")
	s.FakeHost.Jobs = nil
	return s
}

// TestCompleteInitKeepsPatches: only its ConfigMap shows whether a cluster is complete. A second init without the patches
// replaces nothing if there is a ConfigMap, or may be.
func TestCompleteInitKeepsPatches(t *testing.T) {
	silent := func(s *phasetest.Stage) { s.FakeHost.On.Probe = noAPIServer }
	keys := func(s *phasetest.Stage, keys ...string) { silent(s); s.Etcd = phasetest.AskedEtcd{Keys: keys} }
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *phasetest.Stage)
		again  string // the second configuration's addition
	}{
		{"the API server answers", func(_ *testing.T, s *phasetest.Stage) {
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
		}, ""},
		{"a plan, which asks nobody", func(_ *testing.T, s *phasetest.Stage) {
			s.Host, s.Etcd = plan.NewOverlay(s.FakeHost, func(host.Action) {}), etcd.NewPlan(func(etcd.Action) {})
			s.Cluster = cluster.NewPlan(func(cluster.Action) {}, nil)
		}, ""},
		{"a ConfigMap without the key", func(t *testing.T, s *phasetest.Stage) {
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
			phasetest.Fatal(t, s.API.EnsureAbsent(t.Context(), phasetest.SystemConfigMap(t, s, "kubeadm-config")))
			phasetest.Fatal(t, s.API.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "other", "")))
		}, ""},
		{"etcd answers", func(_ *testing.T, s *phasetest.Stage) { keys(s, configKey) }, ""},
		{"nobody answers", func(_ *testing.T, s *phasetest.Stage) {
			silent(s)
			s.Etcd = phasetest.AskedEtcd{Err: errors.New("down")}
		}, ""},
		{"another directory of etcd", func(_ *testing.T, s *phasetest.Stage) {
			silent(s)
			s.Etcd = phasetest.AskedEtcd{Err: errors.New("down")}
		}, "etcd: {local: {dataDir: /srv/etcd}}\n"},
		{"another etcd", func(_ *testing.T, s *phasetest.Stage) { keys(s) }, "etcd: {external: {endpoints: ['https://192.0.2.21:2379']}}\n"},
		{"etcd's static Pod was taken away", func(t *testing.T, s *phasetest.Stage) { keys(s); s.Remove(t, "/etc/kubernetes/manifests/etcd.yaml") }, ""},
		{"another place in etcd", func(t *testing.T, s *phasetest.Stage) {
			keys(s, "/of/configmaps/kube-system/kubeadm-config")
			s.Flagged(t, "--etcd-prefix=of")
		}, ""},
		{"another etcd for ConfigMaps", func(t *testing.T, s *phasetest.Stage) {
			keys(s)
			s.Flagged(t, "--etcd-servers-overrides=/configmaps#https://192.0.2.21:2379")
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := patchedInit(t)
			tt.change(t, s)
			s.FakeHost.Jobs = nil
			kept := s.Get(t, phasetest.APIServerManifest)
			again(t, s, fixture.InitDocument+fixture.ClusterDocument+tt.again)
			if !s.Rerun || s.Unfinished {
				t.Fatalf("found %+v", s.Earlier)
			}
			s.Play(t, certificates(), kubeconfigs(), kubelet.Start(), controlPlane())
			if now, err := s.Host.ReadFile(phasetest.APIServerManifest); string(now) != kept {
				t.Errorf("the API server's static Pod is, %v:\n%s", err, now)
			}
			if stopped := s.FakeHost.Did("stop container"); len(stopped) > 0 {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}

// TestAloneAsksNobody: a single phase's command doesn't wait for an etcd that's down as long as there's nothing to replace.
func TestAloneAsksNobody(t *testing.T) {
	const external = "etcd: {external: {endpoints: ['https://192.0.2.21:2379']}}\n"
	for _, tt := range []struct {
		name, again string
		alone       step.Phase
		asks        bool
	}{
		{"the same certificates", "", kubeconfigs(), false},
		{"a certificate that lacks a name", "apiServer: {certSANs: [api.example.org]}\n", certificates(), true},
		{"preflight", "", preflightInit(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument+external)
			s.Play(t, certificates())
			s.Config = fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument+external+tt.again)
			asked := 0
			s.Etcd = countedEtcd{phasetest.AskedEtcd{}, &asked}
			if found := DetectEarlierPhaseRun(t.Context(), s.Env, tt.alone); found != (step.Earlier{Unfinished: tt.asks}) || (asked > 0) != tt.asks {
				t.Errorf("found %+v, asked %d times", found, asked)
			}
		})
	}
}

type countedEtcd struct {
	etcd.Etcd
	asked *int
}

func (e countedEtcd) Has(ctx context.Context, key string) (bool, error) {
	*e.asked++
	return e.Etcd.Has(ctx, key)
}
