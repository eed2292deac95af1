// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var rollsBackEtcd = []phasetest.EtcdRestart{{
	Name: "rollback", Init: bootstrap.Init, Refuses: func(err error) bool { return errors.As(err, new(*node.QuorumError)) },
	Run: func(t *testing.T, s *phasetest.Stage) error {
		_, wanted := s.Patched(t)
		r := &Rollback{Options: Options{Backup: &upgrading.Backup{}}, before: map[string][]byte{manifests.EtcdName: wanted}}
		return r.putBackControlPlane(t.Context(), s.Env)
	},
}}

func TestEtcdTakesAPIServerAlong(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.Name, r.TakesAPIServerAlong)
	}
}

func TestAPIServerIsAwaited(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.Name, r.AwaitsAPIServer)
	}
}

func TestEtcdIsSpared(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.Name, r.SparesEtcd)
	}
}

// TestRollbackPutsBack: if a component doesn't come up with its previous manifest, the newer one returns, but only if it worked.
func TestRollbackPutsBack(t *testing.T) {
	const now, before = "r/kube-apiserver:v1.37.2", "r/kube-apiserver:v1.36.4"
	for name, row := range map[string]struct {
		broken []string // images that don't start
		runs   string   // afterwards
		back   bool
	}{
		"the newer one worked":  {[]string{before}, now, true},
		"neither of them works": {[]string{before, now}, before, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.RestartStage(t, bootstrap.Init())
			s.Etcd = phasetest.LoneMember{}
			s.Config.Timeouts.UpgradeManifests = time.Second
			path := s.Config.Paths.StaticPod(manifests.APIServerName)
			with := func(image string) string {
				made := s.Get(t, path)
				return strings.Replace(made, manifests.ImageOf([]byte(made)), image, 1)
			}
			previous := []byte(with(before))
			s.Put(t, path, with(now))
			s.RunsPods(row.broken, nil)
			s.FakeHost.On.Probe = func(_ context.Context, p host.Probe) error {
				if strings.Contains(p.URL, ":6443") && slices.Contains(row.broken, s.Image(manifests.APIServerName)) {
					return errors.New("connection refused")
				}
				return nil
			}
			c := node.Replacement{Name: manifests.APIServerName, Before: []byte(s.Get(t, path)), Wanted: previous}
			const newer = "newer"
			settings := s.Config.Paths.KubeletConfig()
			s.Put(t, settings, "previous")
			r := &Rollback{newer: []ownership.File{{Path: settings, Data: []byte(newer), Mode: 0o600}}}
			err := r.swap(t.Context(), s.Env, node.Lease{}, []node.Replacement{c})
			if got := s.Get(t, settings); (got == newer) != row.back {
				t.Errorf("the kubelet's settings are %q", got)
			}
			restored := (*node.RolledBackError)(nil)
			fact.Error(t, err, manifests.APIServerName)
			if got := s.Image(manifests.APIServerName); got != row.runs || errors.As(err, &restored) != row.back {
				t.Errorf("%s runs: %v", got, err)
			}
		})
	}
}
