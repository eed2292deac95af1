// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestAlgorithms(t *testing.T) {
	const digital, encipher, sign = x509.KeyUsageDigitalSignature, x509.KeyUsageKeyEncipherment, x509.KeyUsageCertSign
	tests := []struct {
		algorithm config.EncryptionAlgorithm
		bits      int
		signature x509.SignatureAlgorithm
		leaf, ca  x509.KeyUsage
		block     string
	}{
		{config.RSA2048, 2048, x509.SHA256WithRSA, digital | encipher, digital | encipher | sign, "RSA PRIVATE KEY"},
		{config.RSA3072, 3072, x509.SHA256WithRSA, digital | encipher, digital | encipher | sign, "RSA PRIVATE KEY"},
		{config.RSA4096, 4096, x509.SHA256WithRSA, digital | encipher, digital | encipher | sign, "RSA PRIVATE KEY"},
		{config.ECDSAP256, 256, x509.ECDSAWithSHA256, digital, digital | sign, "EC PRIVATE KEY"},
		{config.ECDSAP384, 384, x509.ECDSAWithSHA384, digital, digital | sign, "EC PRIVATE KEY"},
	}
	for _, tt := range tests {
		t.Run(string(tt.algorithm), func(t *testing.T) {
			t.Parallel()
			n := fixture.DefaultNode("cp-1", "192.168.99.11")
			key, err := NewKey(tt.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			pairs := issueAll(t, n, key)
			ca, leaf := pairs[CA].Cert, pairs["apiserver"].Cert
			if got := bits(leaf); got != tt.bits {
				t.Errorf("the key has %d bits, not %d", got, tt.bits)
			}
			if ca.SignatureAlgorithm != tt.signature || leaf.SignatureAlgorithm != tt.signature {
				t.Errorf("signed with %v and %v, not %v", ca.SignatureAlgorithm, leaf.SignatureAlgorithm, tt.signature)
			}
			if ca.KeyUsage != tt.ca || leaf.KeyUsage != tt.leaf {
				t.Errorf("key usages are %b and %b, not %b and %b", ca.KeyUsage, leaf.KeyUsage, tt.ca, tt.leaf)
			}
			data, err := EncodeKey(key)
			if err != nil || !bytes.HasPrefix(data, []byte("-----BEGIN "+tt.block+"-----\n")) {
				t.Errorf("the key is not a %q (%v)", tt.block, err)
			}
		})
	}
}

func bits(cert *x509.Certificate) int {
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen()
	case *ecdsa.PublicKey:
		return key.Curve.Params().BitSize
	}
	return 0
}

func TestNewKeyUnknown(t *testing.T) {
	_, err := NewKey("DSA-1024")
	if err == nil || !strings.Contains(err.Error(), `"DSA-1024"`) {
		t.Errorf("got %v", err)
	}
}

// The chain verifies, and the certificates have the fields required by RFC 5280.
func TestIssue(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	pairs := issueAll(t, n, rsaKey())
	serials := map[string]bool{}
	for _, spec := range Specs(n) {
		cert := pairs[spec.Name].Cert
		if cert.SerialNumber.Sign() <= 0 || cert.SerialNumber.BitLen() < 64 || len(cert.SerialNumber.Bytes()) > 20 {
			t.Errorf("%s: serial number %v", spec.Name, cert.SerialNumber)
		}
		if serials[cert.SerialNumber.String()] {
			t.Errorf("%s: a serial number for the second time", spec.Name)
		}
		serials[cert.SerialNumber.String()] = true
		if want := now.Add(-5 * time.Minute); !cert.NotBefore.Equal(want) {
			t.Errorf("%s: valid from %v, not %v", spec.Name, cert.NotBefore, want)
		}
		if cert.Version != 3 || !cert.BasicConstraintsValid {
			t.Errorf("%s: version %d, basic constraints %v", spec.Name, cert.Version, cert.BasicConstraintsValid)
		}
		if spec.IsCA() {
			if len(cert.SubjectKeyId) == 0 {
				t.Errorf("%s: no subject key identifier", spec.Name)
			}
			continue
		}
		ca := pairs[spec.CA].Cert
		if !bytes.Equal(cert.AuthorityKeyId, ca.SubjectKeyId) {
			t.Errorf("%s: the authority key identifier is not the CA's", spec.Name)
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: spec.Usages}); err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
	}
}

func TestValidity(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: 2 * time.Hour}
	n.Cluster.CACertificateValidityPeriod = &metav1.Duration{Duration: 90 * time.Minute}
	pairs := issueAll(t, n, rsaKey())
	if got, want := pairs[CA].Cert.NotAfter, now.Add(90*time.Minute); !got.Equal(want) {
		t.Errorf("the CA is valid until %v, not %v", got, want)
	}
	// It's useless without its CA.
	if got, want := pairs["apiserver"].Cert.NotAfter, pairs[CA].Cert.NotAfter; !got.Equal(want) {
		t.Errorf("the leaf is valid until %v, its CA until %v", got, want)
	}

	n.Cluster.CACertificateValidityPeriod.Duration = 3 * time.Hour
	pairs = issueAll(t, n, rsaKey())
	if got, want := pairs["apiserver"].Cert.NotAfter, now.Add(2*time.Hour); !got.Equal(want) {
		t.Errorf("the leaf is valid until %v, not %v", got, want)
	}
}

func TestIssueRefuses(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	spec := find(t, n, "apiserver")
	ca := issueAll(t, n, rsaKey())[CA]
	keyless := Pair{Cert: ca.Cert}
	tests := []struct {
		name string
		ca   Pair
		now  time.Time
		want string
	}{
		{"external CA", keyless, now, `certificate apiserver: | private key | "ca"`},
		{"expired CA", ca, now.Add(87601 * time.Hour), "2026-03-14T15:04:26Z | 2036-03-11T15:09:26Z"},
		{"future CA", ca, now.Add(-time.Hour), "2026-03-14T15:04:26Z | 2026-03-14T14:09:26Z"},
		{"key of another CA", Pair{Cert: ca.Cert, Key: otherRSAKey()}, now, "certificate apiserver:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Issue(spec, n, tt.ca, rsaKey(), tt.now)
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}

// The value is the output of `openssl x509 -pubkey | openssl pkey -pubin -outform der | sha256sum`, as documented for join.
func TestPublicKeyPin(t *testing.T) {
	list, err := ParseCerts([]byte(pinCert))
	if err != nil {
		t.Fatal(err)
	}
	if got := PublicKeyPin(list[0]); got != pinWant {
		t.Errorf("got %s, want %s", got, pinWant)
	}
}

const pinCert = `-----BEGIN CERTIFICATE-----
MIIBejCCAR+gAwIBAgIIJJ1dOeK1KS0wCgYIKoZIzj0EAwIwFTETMBEGA1UEAxMK
a3ViZXJuZXRlczAeFw0yNjExMjEwMTMzNDZaFw0zNjExMTgwMTM4NDZaMBUxEzAR
BgNVBAMTCmt1YmVybmV0ZXMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASrLcjd
Bce3HWed1HpTll94f8jh7qaQKj6Ft3tCeZnKeb1VHlIQxHsWUiYox5R3IS/cqWZT
YHmC8VYWVznlFpoZo1kwVzAOBgNVHQ8BAf8EBAMCAqQwDwYDVR0TAQH/BAUwAwEB
/zAdBgNVHQ4EFgQUTwS8/FRhzxQRQbHVpZzqsgiN660wFQYDVR0RBA4wDIIKa3Vi
ZXJuZXRlczAKBggqhkjOPQQDAgNJADBGAiEAxvgKT7cRWxc6UciDfYzA+Cb+x9p9
NyFvasXY2NQmtxgCIQDnoT3A1rEO4cTzB1LFw2dEJPHip3aA3bf8/8rEZzoNVg==
-----END CERTIFICATE-----
`

const pinWant = "sha256:be17e12de76b9cfa518c0516217d706e49cbaab673af78253996efb384b734c2"
