// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// patchedInit is the host of a complete cluster whose static Pods were made with patches, and whose kubelet does not rotate its
// certificate: kubelet.conf is as at first.
func patchedInit(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.PatchesDir = "/patches"
	s.put(t, "/patches/kube-apiserver0+json.json",
		`[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--encryption-provider-config=/etc/enc.yaml"}]`)
	s.put(t, "/patches/etcd+json.json", `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--quota-backend-bytes=1"}]`)
	s.play(t, filePhases()...)
	s.needsNotes(t)
	s.play(t, uploadConfig())
	s.put(t, "/var/lib/etcd/member/wal/0.wal", "")
	s.host.Runs(s.host.Now(), "etcd", "kube-apiserver")
	s.host.Jobs = nil
	return s
}

// TestCompleteInitKeepsPatches: whether a cluster is complete, only its ConfigMap says. A second init without the patches replaces
// nothing where there is one, or may be.
func TestCompleteInitKeepsPatches(t *testing.T) {
	silent := func(s *stage) { s.host.On.Probe = noAPIServer }
	keys := func(s *stage, keys ...string) { silent(s); s.Etcd = askedEtcd{keys: keys} }
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, s *stage)
		again  string // what the second configuration has beside the first
	}{
		{"the API server answers", func(_ *testing.T, s *stage) {
			s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
		}, ""},
		{"a plan, which asks nobody", func(_ *testing.T, s *stage) {
			s.Host, s.Etcd = plan.NewOverlay(s.host, func(host.Action) {}), etcd.NewPlan(func(etcd.Action) {})
			s.Cluster = cluster.NewPlan(func(cluster.Action) {}, nil)
		}, ""},
		{"a ConfigMap without the key", func(t *testing.T, s *stage) {
			s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
			fatal(t, s.api.EnsureAbsent(t.Context(), systemConfigMap(t, s, "kubeadm-config")))
			fatal(t, s.api.Ensure(t.Context(), fixture.ConfigMap("kubeadm-config", "other", "")))
		}, ""},
		{"etcd answers", func(_ *testing.T, s *stage) { keys(s, configKey) }, ""},
		{"nobody answers", func(_ *testing.T, s *stage) { silent(s); s.Etcd = askedEtcd{err: errors.New("down")} }, ""},
		{"another directory of etcd", func(_ *testing.T, s *stage) { silent(s); s.Etcd = askedEtcd{err: errors.New("down")} }, "etcd: {local: {dataDir: /srv/etcd}}\n"},
		{"another etcd", func(_ *testing.T, s *stage) { keys(s) }, "etcd: {external: {endpoints: ['https://192.0.2.21:2379']}}\n"},
		{"etcd's static Pod was taken away", func(t *testing.T, s *stage) { keys(s); s.remove(t, "/etc/kubernetes/manifests/etcd.yaml") }, ""},
		{"another place in etcd", func(t *testing.T, s *stage) {
			keys(s, "/of/configmaps/kube-system/kubeadm-config")
			s.flagged(t, "--etcd-prefix=of")
		}, ""},
		{"another etcd for ConfigMaps", func(t *testing.T, s *stage) {
			keys(s)
			s.flagged(t, "--etcd-servers-overrides=/configmaps#https://192.0.2.21:2379")
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := patchedInit(t)
			tt.change(t, s)
			s.host.Jobs = nil
			kept := s.get(t, apiServerManifest)
			s.again(t, fixture.InitDocument+fixture.ClusterDocument+tt.again)
			if !s.Again || s.Unfinished {
				t.Fatalf("found %+v", s.Earlier)
			}
			s.play(t, certificates(), kubeconfigs(), kubeletStart(), controlPlane())
			if now, err := s.Host.ReadFile(apiServerManifest); string(now) != kept {
				t.Errorf("the API server's static Pod is, %v:\n%s", err, now)
			}
			if stopped := s.host.Did("stop container"); len(stopped) > 0 {
				t.Errorf("stopped %q", stopped)
			}
		})
	}
}

// flagged gives the API server another flag, as a patch would: its static Pod is still as Slipway has written it.
func (s *stage) flagged(t *testing.T, flag string) {
	t.Helper()
	text := strings.Replace(s.get(t, apiServerManifest), "    - --secure-port=", "    - "+flag+"\n    - --secure-port=", 1)
	fact.In(t, text, flag)
	_, err := s.host.WriteFile(apiServerManifest, []byte(text), 0o600)
	fatal(t, err)
}

// TestAloneAsksNobody: the command of a single phase does not wait for an etcd that is down as long as nothing is to be replaced.
func TestAloneAsksNobody(t *testing.T) {
	const external = "etcd: {external: {endpoints: ['https://192.0.2.21:2379']}}\n"
	for _, tt := range []struct {
		name, again string
		alone       Phase
		asks        bool
	}{
		{"the same certificates", "", kubeconfigs(), false},
		{"a certificate that lacks a name", "apiServer: {certSANs: [api.example.org]}\n", certificates(), true},
		{"preflight", "", preflightInit(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument+external)
			s.play(t, certificates())
			s.Config = fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument+external+tt.again)
			asked := 0
			s.Etcd = countedEtcd{askedEtcd{}, &asked}
			if found := LookBackAlone(t.Context(), s.Env, tt.alone); found != (Earlier{Unfinished: tt.asks}) || (asked > 0) != tt.asks {
				t.Errorf("found %+v, asked %d times", found, asked)
			}
		})
	}
}

// countedEtcd counts questions.
type countedEtcd struct {
	etcd.Etcd
	asked *int
}

func (e countedEtcd) Has(ctx context.Context, key string) (bool, error) {
	*e.asked++
	return e.Etcd.Has(ctx, key)
}
