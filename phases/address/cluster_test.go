// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var movedToNext = &Move{From: []netip.Addr{netip.MustParseAddr(former)}, To: netip.MustParseAddr(next)}

// TestMoveFlannel: the flannel of --network finds the API at the next address, at its own port. A server elsewhere, and somebody else's
// flannel, stay.
func TestMoveFlannel(t *testing.T) {
	for name, test := range map[string]struct{ label, server, want string }{
		"the control plane": {"slipway", former + ":6443", next + ":6443"},
		"another port":      {"slipway", former + ":8443", next + ":8443"},
		"a name":            {"slipway", "api.example.org:6443", "api.example.org:6443"},
		"somebody else's":   {"helm", former + ":6443", former + ":6443"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := single(t)
			s.Config.Cluster.Networking.PodSubnet = "10.244.0.0/16"
			objs, err := manifests.Flannel(s.Config, config.PatchSet{})
			phasetest.Fatal(t, err)
			flannel := objs[len(objs)-1].(*appsv1.DaemonSet)
			manifests.MoveFlannel(flannel, s.Config.Endpoint(), test.server)
			flannel.Labels["app.kubernetes.io/managed-by"] = test.label
			phasetest.Fatal(t, s.API.Ensure(t.Context(), flannel))
			for range 2 {
				phasetest.Fatal(t, movedToNext.configMaps(t.Context(), s.Env))
			}
			_, err = s.API.Get(t.Context(), flannel)
			phasetest.Fatal(t, err)
			if got := manifests.FlannelEndpoint(flannel); got != test.want {
				t.Errorf("flannel finds the API at %s, not %s", got, test.want)
			}
		})
	}
}

// TestMoveKeepsChange: the move writes the ConfigMaps in Slipway's name, and the time of an operator's last change stays known.
func TestMoveKeepsChange(t *testing.T) {
	at := time.Date(2026, 11, 1, 13, 0, 0, 0, time.UTC)
	for name, key := range map[string]string{manifests.KubeadmConfigMap: manifests.KubeadmConfigKey, manifests.KubeletConfigMap: "kubelet"} {
		t.Run(name, func(t *testing.T) {
			s, _ := single(t)
			cm := fixture.ConfigMap(name, key, "address: "+former+"\n")
			cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Time: &metav1.Time{Time: at},
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:data":{"f:` + key + `":{}}}`)}}}
			phasetest.Fatal(t, s.API.Ensure(t.Context(), cm))
			phasetest.Fatal(t, movedToNext.configMaps(t.Context(), s.Env))
			cm = node.ConfigMap(name)
			_, err := s.API.Get(t.Context(), cm)
			phasetest.Fatal(t, err)
			if got := cm.Annotations[edits.ChangedByOperator]; got != at.Format(time.RFC3339) || cm.Data[key] != "address: "+next+"\n" {
				t.Errorf("changed at %q: %s", got, cm.Data[key])
			}
		})
	}
}
