// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"testing"

	"github.com/pkg/errors"
)

var renewsEtcd = []etcdRestart{{
	name: "renewal", init: Init, refuses: func(err error) bool { return errors.As(err, new(*quorumError)) },
	run: func(t *testing.T, s *stage) error {
		return Run(t.Context(), s.Env, Renew(RenewOptions{Name: "etcd-server", Restart: true}), Options{})
	},
}}

func TestEtcdTakesAPIServerAlongInRenewal(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.name, r.takesAPIServerAlong)
	}
}

func TestAPIServerIsAwaitedInRenewal(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.name, r.awaitsAPIServer)
	}
}

func TestEtcdIsSparedInRenewal(t *testing.T) {
	for _, r := range renewsEtcd {
		t.Run(r.name, r.sparesEtcd)
	}
}
