// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const (
	KubeletConf = "/etc/kubernetes/kubelet.conf"
	KubeletPEM  = "/var/lib/kubelet/pki/kubelet-client-current.pem"
)

// RotatedPEM returns a kubelet's client certificate for its node, which no CA has signed.
func RotatedPEM(t *testing.T, node string, until time.Time) string {
	t.Helper()
	return string(certs.EncodeCerts(fixture.Signed(t, fixture.Pair{}, "system:node:"+node, until).Cert))
}

// Rotated writes a client certificate as a node's kubelet does, signed by the cluster's CA if its key is on this host.
func (s *Stage) Rotated(t *testing.T, path, node string, until time.Time) {
	t.Helper()
	ca, err := s.PKI().CA(certs.CA)
	if err != nil || ca.Key == nil {
		s.Put(t, path, RotatedPEM(t, node, until))
		return
	}
	leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "system:node:"+node, until)
	s.Put(t, path, string(certs.EncodeCerts(leaf.Cert)))
}

// WithKubeletFlags returns the documents of a node whose kubelet gets flags.
func WithKubeletFlags(flags string) string {
	return strings.Replace(fixture.InitDocument, "{name: cp-1,", "{name: cp-1, kubeletExtraArgs: ["+flags+"],", 1) + fixture.ClusterDocument
}

// ShortWaits are timeouts short enough for a test.
const ShortWaits = "timeouts: {kubeletHealthCheck: 150ms, controlPlaneComponentHealthCheck: 150ms, tlsBootstrap: 150ms}\n"
