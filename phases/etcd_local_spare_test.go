// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
)

// TestLocalEtcdIsSpared: the command `init phase etcd local` does not make the kubelet restart an etcd that the others need. Where
// nobody can be asked, it works all the same, with a warning.
func TestLocalEtcdIsSpared(t *testing.T) {
	both := []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}, {Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}
	dead := errors.New("connection refused")
	for name, tt := range map[string]struct {
		etcd                  *members
		idle, same            bool
		refused, warns, stays bool
	}{
		"the other works":     {etcd: &members{list: both}},
		"the other is down":   {etcd: &members{list: both, down: map[string]error{"cp-2": dead}}, refused: true, stays: true},
		"nothing changes":     {etcd: &members{list: both, down: map[string]error{"cp-2": dead}}, same: true, stays: true},
		"etcd does not run":   {etcd: &members{list: both, down: map[string]error{"cp-2": dead}}, idle: true},
		"nobody answers":      {etcd: &members{fail: map[string]error{"health": dead}}, warns: true},
		"this one is unknown": {etcd: &members{list: both[1:]}, warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := controlPlaneStage(t, Init())
			s.play(t, localEtcd())
			if !tt.idle {
				s.host.Runs(s.host.Now(), manifests.EtcdName)
			}
			if !tt.same {
				s.Config.Timeouts.ControlPlaneComponentHealthCheck *= 2
			}
			s.Config.Timeouts.EtcdAPICall = 1
			s.Etcd = tt.etcd
			s.said.Reset()
			const path = "/etc/kubernetes/manifests/etcd.yaml"
			before := s.get(t, path)
			err := Run(t.Context(), s.Env, []Phase{localEtcd()}, Options{})
			if kept := (*quorumError)(nil); errors.As(err, &kept) != tt.refused || !tt.refused && err != nil {
				t.Errorf("error %v", err)
			}
			if stays := s.get(t, path) == before; stays != tt.stays {
				t.Errorf("the static Pod stays: %t", stays)
			}
			if warns := strings.Contains(s.said.String(), "[WARNING]"); warns != tt.warns {
				t.Errorf("said:\n%s", s.said.String())
			}
		})
	}
}
