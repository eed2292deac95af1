// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

func patchedEtcd(t *testing.T, s *stage) componentUpgrade {
	t.Helper()
	before, wanted := s.patched(t)
	return componentUpgrade{name: manifests.EtcdName, before: before, wanted: wanted}
}

func refusesQuorum(err error) bool { return errors.As(err, new(*quorumError)) }

var upgradesEtcd = []etcdRestart{
	{name: "upgrade", init: Init, refuses: refusesQuorum, run: func(t *testing.T, s *stage) error {
		mine, err := takeTurn(t.Context(), s.Env, forUpgrade)
		fatal(t, err)
		return mine.finish(t.Context(), s.Env, mine.replaceComponents(t.Context(), s.Env, []componentUpgrade{patchedEtcd(t, s)}))
	}},
	{name: "put back", init: Init, refuses: func(err error) bool { return err != nil }, run: func(t *testing.T, s *stage) error {
		c := patchedEtcd(t, s)
		s.put(t, thisnode.StaticPodPath(s.Config, manifests.EtcdName), string(c.wanted))
		err := turn{}.putBack(t.Context(), s.Env, []componentUpgrade{c}, []bool{false}, errors.New("it failed"))
		if errors.As(err, new(*restoredError)) {
			return nil
		}
		return err
	}},
}

func TestEtcdTakesAPIServerAlong(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.name, r.takesAPIServerAlong)
	}
}

func TestAPIServerIsAwaited(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.name, r.awaitsAPIServer)
	}
}

func TestEtcdIsSpared(t *testing.T) {
	for _, r := range upgradesEtcd {
		t.Run(r.name, r.sparesEtcd)
	}
}
