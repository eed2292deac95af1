// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// listed is a cluster with fixed nodes.
type listed struct {
	cluster.Cluster
	nodes []corev1.Node
}

func (l listed) Nodes(context.Context) ([]corev1.Node, error) { return l.nodes, nil }

// TestTurnAfterRefusal: a run that has replaced nothing returns the Lease, unless an earlier run may have replaced something.
func TestTurnAfterRefusal(t *testing.T) {
	for name, earlier := range map[string]string{"at first": "", "continued": "cp-1"} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.PlaneToUpgrade(t)
			s.FakeHost.Jobs = nil
			s.RunsPods(nil, nil)
			s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{ID: 1, Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
			s.Config.Timeouts.KubeletHealthCheck = 10 * time.Millisecond
			other := cluster.NewNode("cp-2")
			other.Labels = map[string]string{cluster.LabelControlPlane: ""}
			s.Cluster = listed{s.API, []corev1.Node{*other}}
			if earlier != "" {
				s.Holds(t, earlier, time.Hour)
			}
			err := runUpgradeControlPlane(t.Context(), s.Env)
			fact.Error(t, err, "node cp-2", "not Ready")
			if s.Holder(t) != earlier {
				t.Errorf("holder %q, want %q", s.Holder(t), earlier)
			}
			if changed := s.FakeHost.Jobs; len(changed) > 0 {
				t.Errorf("did %q", changed)
			}
		})
	}
}
