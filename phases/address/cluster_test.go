// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
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
