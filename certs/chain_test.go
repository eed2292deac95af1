// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// authority returns a CA, changed by edit before parent signs it; without a parent, it signs itself.
func authority(t *testing.T, name string, parent *Pair, edit func(*x509.Certificate)) Pair {
	t.Helper()
	key := mustKey(config.ECDSAP256)
	template := newTemplate(Spec{Name: name, CommonName: name}, key.Public(), now, 24*365*time.Hour)
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	if edit != nil {
		edit(template)
	}
	signer, by := template, key
	if parent != nil {
		signer, by = parent.Cert, parent.Key
	}
	cert, err := sign(Spec{Name: name}, template, signer, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: cert, Key: key}
}

// TestChains: a certificate may come with the intermediate CAs between it and the host's CA, in any order.
func TestChains(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	root := authority(t, "root", nil, nil)
	upper := authority(t, "upper", &root, nil)
	lower := authority(t, "lower", &upper, nil)
	stranger := authority(t, "stranger", nil, nil)
	past := authority(t, "past", &root, func(c *x509.Certificate) { c.NotAfter = now.Add(time.Minute) })
	narrow := authority(t, "narrow", &root, func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example.org"}, true
	})
	for name, tt := range map[string]struct {
		signer  Pair
		more    []*x509.Certificate
		issuers []*x509.Certificate
		now     time.Time
		kinds   []string
	}{
		"signed by the root":                {root, nil, root.Bundle(), now, nil},
		"with its intermediate":             {upper, upper.Bundle(), root.Bundle(), now, nil},
		"with two, the wrong way round":     {lower, []*x509.Certificate{upper.Cert, lower.Cert}, root.Bundle(), now, nil},
		"with its root as well":             {upper, []*x509.Certificate{upper.Cert, root.Cert}, root.Bundle(), now, nil},
		"the host trusts the intermediate":  {upper, nil, []*x509.Certificate{upper.Cert, root.Cert}, now, nil},
		"without its intermediate":          {upper, nil, root.Bundle(), now, []string{WrongIssuer}},
		"with one of two":                   {lower, lower.Bundle(), root.Bundle(), now, []string{WrongIssuer}},
		"with a stranger":                   {upper, stranger.Bundle(), root.Bundle(), now, []string{WrongIssuer}},
		"under another root":                {upper, upper.Bundle(), stranger.Bundle(), now, []string{WrongIssuer}},
		"with an intermediate that expired": {past, past.Bundle(), root.Bundle(), now.Add(time.Hour), []string{Expired}},
		"with one that permits other names": {narrow, narrow.Bundle(), root.Bundle(), now, []string{Restricted}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := find(t, n, APIServer)
			key := mustKey(config.ECDSAP256)
			template := newTemplate(spec, key.Public(), now, time.Hour)
			cert, err := sign(spec, template, tt.signer.Cert, key.Public(), tt.signer.Key)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := ParsePair(EncodeCerts(append([]*x509.Certificate{cert}, tt.more...)...), nil)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, f := range Faults(spec, pair, tt.issuers, tt.now) {
				kinds = append(kinds, f.Name)
			}
			if len(kinds) != len(tt.kinds) || len(kinds) > 0 && kinds[0] != tt.kinds[0] {
				t.Errorf("faults %v, want %v", kinds, tt.kinds)
			}
		})
	}
}

// TestRestrictedCA: a CA that mustn't sign a node's certificates is refused before it has signed anything, and never issues
// certificates that would be refused afterwards.
func TestRestrictedCA(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	row := find(t, n, CA)
	for name, tt := range map[string]struct {
		edit func(*x509.Certificate)
		want string // in the error; empty for none
	}{
		"no restriction":  {nil, ""},
		"all names":       {func(c *x509.Certificate) { c.ExcludedDNSDomains = []string{"example.org"} }, ""},
		"other names":     {func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.org"} }, "apiserver: | not permitted"},
		"no client":       {func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "apiserver-kubelet-client: | key usage"},
		"another subject": {func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: "corp"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ca := authority(t, "kubernetes", nil, tt.edit)
			err := CheckIssues(row, n, ca, now)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			fact.Error(t, err, append(fact.Of(tt.want), "/etc/kubernetes/pki/ca.crt:")...)
			var failure *Error
			if !errors.As(err, &failure) || !failure.Only(Restricted) {
				t.Fatalf("%v", err)
			}
			fact.In(t, failure.Remedy(), "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/ca.key")
		})
	}
}
