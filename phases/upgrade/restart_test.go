// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func patchedEtcd(t *testing.T, s *phasetest.Stage) node.Replacement {
	t.Helper()
	before, wanted := s.Patched(t)
	return node.Replacement{Name: manifests.EtcdName, Before: before, Wanted: wanted}
}

func refusesQuorum(err error) bool { return errors.As(err, new(*node.QuorumError)) }

var upgradesEtcd = []phasetest.EtcdRestart{
	{Name: "upgrade", Init: bootstrap.Init, Refuses: refusesQuorum, Run: func(t *testing.T, s *phasetest.Stage) error {
		mine, err := node.AcquireLease(t.Context(), s.Env, node.ForUpgrade)
		phasetest.Fatal(t, err)
		return mine.Release(t.Context(), s.Env, replaceComponents(t.Context(), s.Env, mine, []node.Replacement{patchedEtcd(t, s)}))
	}},
	{Name: "put back", Init: bootstrap.Init, Refuses: func(err error) bool { return err != nil }, Run: func(t *testing.T, s *phasetest.Stage) error {
		c := patchedEtcd(t, s)
		s.Put(t, s.Config.Paths.StaticPod(manifests.EtcdName), string(c.Wanted))
		err := node.RollBack(t.Context(), s.Env, node.Lease{}, []node.Replacement{c}, errors.New("it failed"))
		if errors.As(err, new(*node.RolledBackError)) {
			return nil
		}
		return err
	}},
}

func TestEtcdTakesAPIServerAlong(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.Name, r.TakesAPIServerAlong)
	}
}

func TestAPIServerIsAwaited(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.Name, r.AwaitsAPIServer)
	}
}

func TestEtcdIsSpared(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.Name, r.SparesEtcd)
	}
}
