// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"io"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
)

// KubeletServingAlgorithm is the algorithm of a kubelet's own keys, independent of the cluster's other keys.
const KubeletServingAlgorithm = config.ECDSAP256

const kubeletServingLifetime = 365 * 24 * time.Hour

// KubeletServing returns a self-signed serving certificate for a node's name, like the one its kubelet would generate, see
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
func KubeletServing(node string, key crypto.Signer, now time.Time, random io.Reader) (*x509.Certificate, error) {
	spec := Spec{Name: "kubelet-serving", CommonName: node, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip, err := netip.ParseAddr(node); err == nil {
		spec.IPs = []netip.Addr{ip}
	} else {
		spec.DNSNames = []string{node}
	}
	template, err := newTemplate(spec, key.Public(), now, kubeletServingLifetime, random)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(public) // RFC 7093, section 2, method 4
	template.SubjectKeyId, template.AuthorityKeyId = id[:20], id[:20]
	return sign(spec, template, template, key.Public(), key, random)
}
