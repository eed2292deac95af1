// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var renewsEtcd = []phasetest.EtcdRestart{{
	Name: "renewal", Init: bootstrap.Init, Refuses: func(err error) bool { return errors.As(err, new(*node.QuorumError)) },
	Run: func(t *testing.T, s *phasetest.Stage) error {
		return step.Run(t.Context(), s.Env, Certificates(Options{Name: "etcd-server", Restart: true}), step.Options{})
	},
}}

func TestEtcdTakesAPIServerAlong(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.Name, r.TakesAPIServerAlong)
	}
}

func TestAPIServerIsAwaited(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.Name, r.AwaitsAPIServer)
	}
}

func TestEtcdIsSpared(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.Name, r.SparesEtcd)
	}
}
