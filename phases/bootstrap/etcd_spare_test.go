// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestLocalEtcdIsSpared: `init phase etcd local` doesn't make the kubelet restart an etcd the others need. If nobody answers, it
// writes the static Pod with a warning.
func TestLocalEtcdIsSpared(t *testing.T) {
	both := []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}
	dead := errors.New("connection refused")
	for name, tt := range map[string]struct {
		etcd                  *phasetest.FakeMembers
		idle, same            bool
		refused, warns, stays bool
	}{
		"the other works":     {etcd: &phasetest.FakeMembers{List: both}},
		"the other is down":   {etcd: &phasetest.FakeMembers{List: both, Down: map[string]error{"cp-2": dead}}, refused: true, stays: true},
		"nothing changes":     {etcd: &phasetest.FakeMembers{List: both, Down: map[string]error{"cp-2": dead}}, same: true, stays: true},
		"etcd does not run":   {etcd: &phasetest.FakeMembers{List: both, Down: map[string]error{"cp-2": dead}}, idle: true},
		"nobody answers":      {etcd: &phasetest.FakeMembers{Fail: map[string]error{"health": dead}}, warns: true},
		"this one is unknown": {etcd: &phasetest.FakeMembers{List: both[1:]}, warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.ControlPlaneStage(t, Init())
			s.Play(t, localEtcd())
			if !tt.idle {
				s.FakeHost.Runs(s.FakeHost.Now(), manifests.EtcdName)
			}
			if !tt.same {
				s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			}
			s.Config.Timeouts.EtcdAPICall = 1
			s.Etcd = tt.etcd
			s.Said.Reset()
			const path = "/etc/kubernetes/manifests/etcd.yaml"
			before := s.Get(t, path)
			err := step.Run(t.Context(), s.Env, []step.Phase{localEtcd()}, step.Options{})
			if kept := (*node.QuorumError)(nil); errors.As(err, &kept) != tt.refused || !tt.refused && err != nil {
				t.Errorf("error %v", err)
			}
			if stays := s.Get(t, path) == before; stays != tt.stays {
				t.Errorf("the static Pod stays: %t", stays)
			}
			if warns := strings.Contains(s.Said.String(), "[WARNING]"); warns != tt.warns {
				t.Errorf("said:\n%s", s.Said.String())
			}
		})
	}
}
