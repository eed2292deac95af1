// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
)

var rollsBackEtcd = []etcdRestart{{
	name: "rollback", init: Init, refuses: func(err error) bool { return errors.As(err, new(*quorumError)) },
	run: func(t *testing.T, s *stage) error {
		_, wanted := s.patched(t)
		r := &Rollback{RollbackOptions: RollbackOptions{Backup: &upgrading.Backup{}}, before: map[string][]byte{manifests.EtcdName: wanted}}
		return r.putBackControlPlane(t.Context(), s.Env)
	},
}}

func TestEtcdTakesAPIServerAlongInRollback(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.name, r.takesAPIServerAlong)
	}
}

func TestAPIServerIsAwaitedInRollback(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.name, r.awaitsAPIServer)
	}
}

func TestEtcdIsSparedInRollback(t *testing.T) {
	for _, r := range rollsBackEtcd {
		t.Run(r.name, r.sparesEtcd)
	}
}

// TestRollbackPutsBack: a component that does not come up with its previous manifest is replaced by what ran before the
// rollback, if that worked. If it did not, it is what the user wants to leave.
func TestRollbackPutsBack(t *testing.T) {
	const now, before = "r/kube-apiserver:v1.37.2", "r/kube-apiserver:v1.36.4"
	for name, row := range map[string]struct {
		broken []string // images that do not start
		runs   string   // afterwards
		back   bool
	}{
		"the newer one worked":  {[]string{before}, now, true},
		"neither of them works": {[]string{before, now}, before, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := restartStage(t, Init())
			s.Etcd = loneMember{}
			s.Config.Timeouts.UpgradeManifests = time.Second
			path := thisnode.StaticPodPath(s.Config, manifests.APIServerName)
			with := func(image string) string {
				made := s.get(t, path)
				return strings.Replace(made, imageOf([]byte(made)), image, 1)
			}
			previous := []byte(with(before))
			s.put(t, path, with(now))
			s.runsPods(row.broken, nil)
			s.host.On.Probe = func(_ context.Context, p host.Probe) error {
				if strings.Contains(p.URL, ":6443") && slices.Contains(row.broken, s.image(manifests.APIServerName)) {
					return errors.New("connection refused")
				}
				return nil
			}
			c := componentUpgrade{name: manifests.APIServerName, before: []byte(s.get(t, path)), wanted: previous}
			err := (&Rollback{}).swap(t.Context(), s.Env, turn{}, []componentUpgrade{c})
			restored := (*restoredError)(nil)
			fact.Error(t, err, manifests.APIServerName)
			if got := s.image(manifests.APIServerName); got != row.runs || errors.As(err, &restored) != row.back {
				t.Errorf("%s runs: %v", got, err)
			}
		})
	}
}
