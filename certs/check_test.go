// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pkgerrors "github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestCheckAcceptsOwn(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	n.Cluster.APIServer.CertSANs = []string{"*.wild.example", "Alpha.example", "fd00::7"}
	for _, key := range []config.EncryptionAlgorithm{config.ECDSAP256, config.ECDSAP384} {
		pairs := issueAll(t, n, mustKey(key))
		for _, spec := range Specs(n) {
			// Read from a file, as a later run would.
			pair, err := ParsePair(EncodeCerts(pairs[spec.Name].Cert), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(spec, n, pair, pairs[spec.CA].Bundle(), now); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCheck checks leaves that somebody else could have issued for the rows "apiserver", "etcd-server" and "front-proxy-client".
func TestCheck(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	key := mustKey(config.ECDSAP256)
	pairs := issueAll(t, n, key)
	otherCA, err := NewCA(Specs(n)[0], n, mustKey(config.ECDSAP256), now)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	type setup struct {
		row     string
		edit    func(*x509.Certificate) // the certificate to sign
		pair    func(*Pair)             // the pair as read
		issuers []*x509.Certificate
		now     time.Time
		key     *ecdsa.PrivateKey // the leaf's
	}
	tests := []struct {
		name   string
		setup  setup
		kinds  []string
		detail string
	}{
		{"right", setup{}, nil, ""},
		{"right etcd", setup{row: "etcd-server"}, nil, ""},
		{"right with more names", setup{edit: func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "more.example") }}, nil, ""},
		{"right by a wildcard", setup{edit: func(c *x509.Certificate) {
			c.DNSNames = []string{"cp-1", "kubernetes", "kubernetes.default", "*.default.svc", "KUBERNETES.default.svc.cluster.local"}
		}}, nil, ""},
		{"right without usages", setup{edit: func(c *x509.Certificate) { c.KeyUsage, c.ExtKeyUsage = 0, nil }}, nil, ""},
		{"right for any usage", setup{edit: func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		}}, nil, ""},
		{"right with another subject, a server", setup{edit: func(c *x509.Certificate) { c.Subject.CommonName = "me" }}, nil, ""},
		{"right with an external key", setup{pair: func(p *Pair) { p.Key = nil }}, nil, ""},
		{"right by the second CA of the bundle", setup{issuers: []*x509.Certificate{otherCA, pairs[CA].Cert}}, nil, ""},
		{"right as system:masters", setup{row: "front-proxy-client", edit: func(c *x509.Certificate) {
			c.Subject.CommonName, c.Subject.Organization = "boss", []string{"system:masters"}
		}}, nil, ""},

		{"other key", setup{pair: func(p *Pair) { p.Key = otherRSAKey() }}, []string{KeyMismatch},
			"private key"},
		{"weak key", setup{key: weak, pair: func(p *Pair) { p.Key = weak }}, []string{WeakKey},
			"ECDSA | P-224"},
		{"future", setup{now: now.Add(-time.Hour)}, []string{NotYetValid},
			"2026-03-14T15:04:26Z | 2026-03-14T14:09:26Z"},
		{"expired", setup{now: now.Add(8761 * time.Hour)}, []string{Expired},
			"expired | 2027-03-14T15:09:26Z | 2027-03-14T16:09:26Z"},
		{"other CA", setup{issuers: []*x509.Certificate{otherCA}}, []string{WrongIssuer},
			`CA "ca" | x509: ECDSA`},
		{"no CA", setup{issuers: []*x509.Certificate{}}, []string{WrongIssuer}, "no certificate"},
		{"a client only", setup{edit: func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}}, []string{WrongUsage}, "extended key | server authentication"},
		{"etcd, a server only", setup{row: "etcd-server", edit: func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}}, []string{WrongUsage}, "extended key | client authentication"},
		{"no signatures", setup{edit: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }},
			[]string{WrongUsage}, "key usage | digital signature"},
		{"missing names", setup{edit: func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = []string{"cp-1", "kubernetes"}, []net.IP{net.IPv4(10, 96, 0, 1)}
		}}, []string{MissingSAN}, "kubernetes.default, kubernetes.default.svc, " +
			"kubernetes.default.svc.cluster.local, 192.168.99.11"},
		{"somebody else", setup{row: "front-proxy-client", edit: func(c *x509.Certificate) { c.Subject.CommonName = "me" }},
			[]string{WrongSubject}, `common name | "me" | "front-proxy-client"`},
		{"all at once", setup{
			now:     now.Add(8761 * time.Hour),
			issuers: []*x509.Certificate{otherCA},
			pair:    func(p *Pair) { p.Key = otherRSAKey() },
			edit: func(c *x509.Certificate) {
				c.DNSNames, c.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			},
		}, []string{KeyMismatch, Expired, WrongUsage, MissingSAN, WrongIssuer}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.setup
			if s.row == "" {
				s.row = "apiserver"
			}
			if s.now.IsZero() {
				s.now = now
			}
			spec := find(t, n, s.row)
			if s.issuers == nil {
				s.issuers = pairs[spec.CA].Bundle()
			}
			if s.key == nil {
				s.key = key.(*ecdsa.PrivateKey)
			}
			template := newTemplate(spec, s.key.Public(), now, 8760*time.Hour)
			if s.edit != nil {
				s.edit(template)
			}
			cert, err := sign(spec, template, pairs[spec.CA].Cert, s.key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			pair := Pair{Cert: cert, Key: key}
			if s.pair != nil {
				s.pair(&pair)
			}
			wantFaults(t, Check(spec, n, pair, s.issuers, s.now), tt.kinds, tt.detail)
		})
	}
}

func wantFaults(t *testing.T, err error, kinds []string, detail string) {
	t.Helper()
	var failure *Error
	if errors.As(err, &failure) != (len(kinds) > 0) {
		t.Fatalf("got %v, want %v", err, kinds)
	}
	if failure == nil {
		return
	}
	var got []string
	for _, f := range failure.Faults {
		got = append(got, f.Name)
	}
	if !slices.Equal(got, kinds) {
		t.Errorf("faults are %q, not %q", got, kinds)
	}
	fact.In(t, err.Error(), fact.Of(detail)...)
}

func TestCheckCA(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	spec := find(t, n, CA)
	key := mustKey(config.ECDSAP256)
	tests := []struct {
		name   string
		edit   func(*x509.Certificate)
		now    time.Time
		kinds  []string
		detail string
	}{
		{"of the user's", func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames, c.KeyUsage = "Example Corp", nil, x509.KeyUsageCertSign
		}, now, nil, ""},
		{"without key usage", func(c *x509.Certificate) { c.KeyUsage = 0 }, now, nil, ""},
		{"a leaf", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 }, now, []string{NotCA},
			"basic constraints | CA:TRUE"},
		{"no constraints", func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false; c.KeyUsage = 0 },
			now, []string{NotCA}, "CA:TRUE"},
		{"may not sign", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, now,
			[]string{NotCA}, "key usage"},
		{"expired", nil, now.Add(87601 * time.Hour), []string{Expired}, "expired | 2036-03-11T15:09:26Z"},
		{"future", nil, now.Add(-time.Hour), []string{NotYetValid}, "2026-03-14T15:04:26Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			template := newTemplate(spec, key.Public(), now, 87600*time.Hour)
			template.IsCA = true
			template.KeyUsage |= x509.KeyUsageCertSign
			if tt.edit != nil {
				tt.edit(template)
			}
			cert, err := sign(spec, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			wantFaults(t, Check(spec, n, Pair{Cert: cert, Key: key}, nil, tt.now), tt.kinds, tt.detail)
		})
	}
}

// A CA whose constraints don't allow the necessary names and usages.
func TestCheckConstraints(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	key := mustKey(config.ECDSAP256)
	tests := []struct {
		name string
		edit func(*x509.Certificate)
		want string
	}{
		{"names", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"corp.example"} },
			`CA "ca" | x509:`},
		{"usages", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
			`CA "ca" | x509: | key usage`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			template := newTemplate(find(t, n, CA), key.Public(), now, 87600*time.Hour)
			template.IsCA = true
			template.KeyUsage |= x509.KeyUsageCertSign
			tt.edit(template)
			ca, err := sign(find(t, n, CA), template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			spec := find(t, n, "apiserver")
			if _, err := Issue(spec, n, Pair{Cert: ca, Key: key}, key, now); err == nil {
				t.Error("it was issued")
			}
			template = newTemplate(spec, key.Public(), now, time.Hour)
			cert, err := sign(spec, template, ca, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			wantFaults(t, Check(spec, n, Pair{Cert: cert, Key: key}, []*x509.Certificate{ca}, now), []string{Restricted}, tt.want)
		})
	}
}

func TestWeakRSA(t *testing.T) {
	block, _ := pem.Decode([]byte(rsa1024))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	fact.In(t, weakKey(public.(*rsa.PublicKey)), "RSA", "1024", "2048")
}

// TestErrorText: an error names the file and has a line for each fault; its remedy has the command or the files to replace.
func TestErrorText(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	pairs := issueAll(t, n, rsaKey())
	leaf, ca := find(t, n, "etcd-server"), find(t, n, EtcdCA)
	late := now.Add(8761 * time.Hour)

	err := Check(leaf, n, pairs[leaf.Name], pairs[EtcdCA].Bundle(), late)
	wantFault(t, err, "`slipway certs renew etcd-server`", "/etc/kubernetes/pki/etcd/server.crt: | expired | 2027-03-14T15:09:26Z | 2027-03-14T16:09:26Z")

	moved := leaf
	moved.IPs = append(slices.Clone(leaf.IPs), netip.MustParseAddr("10.1.1.1"))
	err = Check(moved, n, pairs[leaf.Name], pairs[EtcdCA].Bundle(), late)
	wantFault(t, err, "/etc/kubernetes/pki/etcd/server.crt | /etc/kubernetes/pki/etcd/server.key | `slipway init phase certs etcd-server`",
		"/etc/kubernetes/pki/etcd/server.crt: | 2 faults", "- expired | 2027-03-14T15:09:26Z | 2027-03-14T16:09:26Z", "- | 10.1.1.1")

	err = Check(ca, n, Pair{Cert: pairs[EtcdCA].Cert, Key: otherRSAKey()}, nil, now)
	wantFault(t, err, "/etc/kubernetes/pki/etcd/ca.crt | /etc/kubernetes/pki/etcd/ca.key", "/etc/kubernetes/pki/etcd/ca.crt: | private key")
	fact.NotIn(t, fault.Remedy(err), "delete", "`slipway")
	var failure *Error
	if !errors.As(pkgerrors.Wrap(err, "phase"), &failure) || !failure.Only(KeyMismatch, Expired) || failure.Only(Expired) {
		t.Errorf("the kinds cannot be told from %v", err)
	}
}

// wantFault looks for the facts of the remedy, and of each line of the message.
func wantFault(t *testing.T, err error, remedy string, lines ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", lines)
		return
	}
	got := fault.Of(pkgerrors.Wrap(err, "phase"))
	lines[0] = "phase: " + lines[0]
	fact.List(t, strings.Split(got.Message, "\n"), lines...)
	fact.In(t, got.Remedy, fact.Of(remedy)...)
}

const rsa1024 = `-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCcgRlZ4OPOixA3bSCt8qmKl8fY
E2KXNoFfufhArO/TqECm9momKsDouf+4TQoedHarRjM1kVoHUoyF26bcraHKOKFJ
V2aGA14pgfXEtj5z2RmJCQ5C4kv200/bc5UngjDGWP40JEs4VrflFy1jfEYTRJXO
toYJx19OYIw++yPURQIDAQAB
-----END PUBLIC KEY-----
`
