// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

func TestRenewal(t *testing.T) {
	row := Spec{
		Name: "apiserver", CommonName: "kube-apiserver", DNSNames: []string{"kubernetes", "new.example"},
		IPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	old := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "by-hand", Organization: []string{"system:masters"}},
		DNSNames:    []string{"Kubernetes", "by-hand.example"},
		IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1), net.ParseIP("10.96.0.1")},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	want := Spec{
		Name: "apiserver", CommonName: "by-hand", Organization: []string{"system:masters"},
		DNSNames: []string{"by-hand.example", "kubernetes", "new.example"},
		IPs:      []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("192.0.2.1")},
		Usages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, Renewal(row, old), addr); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(row.DNSNames) != 2 || len(row.Usages) != 1 {
		t.Errorf("the row itself was changed: %+v", row)
	}
}

func TestAlgorithmOf(t *testing.T) {
	for _, a := range []config.EncryptionAlgorithm{config.RSA2048, config.ECDSAP256, config.ECDSAP384} {
		key, err := NewKey(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := AlgorithmOf(key.Public()); got != a {
			t.Errorf("%s of a key of kind %s", got, a)
		}
	}
}

func TestRequest(t *testing.T) {
	key, err := NewKey(config.ECDSAP256)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Request(Spec{
		Name: "x", CommonName: "cn", Organization: []string{"o"}, DNSNames: []string{"a.example"},
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	got, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || got.CheckSignature() != nil {
		t.Fatal(err)
	}
	if got.Subject.CommonName != "cn" || got.Subject.Organization[0] != "o" || got.DNSNames[0] != "a.example" ||
		!got.IPAddresses[0].Equal(net.IPv4(192, 0, 2, 1)) || block.Type != "CERTIFICATE REQUEST" {
		t.Errorf("%+v", got)
	}
}

func TestFirstCert(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"", "empty"},
		{"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no certificate | PEM"},
		{"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 1 | x509: malformed certificate"},
	} {
		_, err := FirstCert([]byte(c.data))
		fact.Error(t, err, fact.Of(c.want)...)
	}
}
