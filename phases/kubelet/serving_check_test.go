// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestServingRequestOfFormerKubelet: only the process that has made a request has its key. The API's times have whole seconds.
func TestServingRequestOfFormerKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		started  time.Duration // after the request
		moved    bool
		approved bool
	}{
		"due, before the start": {time.Minute, false, false}, "due": {-time.Minute, false, true}, "due, the same second": {0, false, true},
		"moved, before the start": {time.Minute, true, false}, "moved": {-time.Minute, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			address, share := "192.0.2.11", 0.8
			if test.moved {
				address, share = "192.0.2.77", 0.1
			}
			s, api := asking(t, true, func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
				x.IPAddresses[0] = net.ParseIP(address)
			})
			s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr(address)}
			registered := cluster.NewNode("cp-1")
			registered.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
			phasetest.Fatal(t, s.API.Ensure(t.Context(), registered))
			at := s.Host.Now().Truncate(time.Second)
			api.requests[0].Metadata.CreationTimestamp.Time = at
			started := at.Add(test.started + time.Second/2)
			s.FakeHost.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: started}
			key, err := certs.NewKey(certs.KubeletServingAlgorithm)
			phasetest.Fatal(t, err)
			certify(t, s, key.Public(), share, false)
			phasetest.Fatal(t, RenewServing(t.Context(), s.Env))
			if slices.Equal(api.approved, []string{"csr-0"}) != test.approved {
				t.Errorf("approved %q", api.approved)
			}
		})
	}
}

// TestServiceSubnetOfNode: Services' addresses are those of this host's API server, whatever the configuration says.
func TestServiceSubnetOfNode(t *testing.T) {
	for name, test := range map[string]struct {
		address  string
		approved bool
	}{"a Service's": {"172.30.0.1", false}, "the host's": {"10.96.0.1", true}} {
		t.Run(name, func(t *testing.T) {
			s, api := asking(t, true, func(x *x509.CertificateRequest, _ *cluster.CertificateRequest) {
				x.IPAddresses[0] = net.ParseIP(test.address)
			})
			s.FakeHost.Has.Addresses = []netip.Addr{netip.MustParseAddr(test.address)}
			s.Put(t, s.Config.Paths.StaticPod(manifests.APIServerName), "spec: {containers: [{command: [kube-apiserver, --service-cluster-ip-range=172.30.0.0/16]}]}\n")
			phasetest.Fatal(t, ensureServing(t.Context(), s.Env))
			if (len(api.approved) == 1) != test.approved {
				t.Errorf("approved %q, said %s", api.approved, s.Said.String())
			}
		})
	}
}
