// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"time"
)

const kubeletClient = "/var/lib/kubelet/pki/kubelet-client-current.pem"

// saysJoinedWhenItHas: a worker was switched off until its certificate expired. Nobody signs a new one, so its join
// fails and can be repeated. Once somebody signs, the join succeeds with a valid certificate and a node that reports.
func (m machine) saysJoinedWhenItHas(w machine, args []string) {
	m.Helper()
	w.must("systemctl", "stop", "kubelet")
	w.write(kubeletClient, m.expiredClient(w.node.Name()))
	const signer, away = "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/root/kube-controller-manager.yaml"
	m.must("mv", signer, away)

	at := slices.Index(args, "--token") + 1
	w.write("/root/join.yaml", `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: "`+args[0]+`", token: `+args[at]+`, unsafeSkipCAVerification: true}}
nodeRegistration: {ignorePreflightErrors: [all]}
timeouts: {tlsBootstrap: 8s}
`)
	out, err := w.try("slipway", "join", "--config=/root/join.yaml")
	if err == nil || strings.Contains(out, "has joined") {
		m.Errorf("a join that nobody signs for: %v\n%s", err, out)
	}
	if out, err := w.try("test", "-e", "/etc/kubernetes/bootstrap-kubelet.conf"); err != nil {
		m.Errorf("the credentials to join with are gone: %v %s", err, out)
	}

	m.must("mv", away, signer)
	if out, err := w.try(append([]string{"slipway", "join"}, args...)...); err != nil {
		m.Fatalf("the same join, signed for: %v\n%s", err, out)
	}
	if cert := w.certificate(kubeletClient); time.Now().After(cert.NotAfter) {
		m.Errorf("the kubelet's certificate ended on %s", cert.NotAfter)
	}
	m.ready(w.node.Name())
}

// expiredClient returns a client certificate with its key for a kubelet of m's cluster. It expired an hour ago.
func (m machine) expiredClient(node string) string {
	m.Helper()
	ca, err := tls.X509KeyPair([]byte(m.must("cat", "/etc/kubernetes/pki/ca.crt")), []byte(m.must("cat", "/etc/kubernetes/pki/ca.key")))
	if err != nil {
		m.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7),
		Subject:   pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		m.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		m.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}
