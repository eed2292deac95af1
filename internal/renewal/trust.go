// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renewal

import (
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// CheckTrust checks, before anything is renewed, that clients and servers of this node will accept each other's certificates
// afterwards. The error shows both sides of each that won't. If a single certificate is renewed, it is about that one.
func (r Renewal) CheckTrust() error {
	t := &trust{r: r, renewed: map[string]certs.Pair{}}
	for _, row := range sorted(certs.Specs(r.Store.Config), certs.Spec.Renewable) {
		if (r.Name != "" && r.Name != row.Name) || !r.canRenew(row) {
			continue
		}
		ca, err := r.Store.CA(row.CA)
		if err != nil {
			return err
		}
		t.renewed[r.Store.Files(row)[0]] = ca
	}
	if r.Name != "" {
		t.only = func(path string) bool { return t.renewed[path].Cert != nil }
	}
	return t.check()
}

// CheckTrustNow is CheckTrust for the files as they are: before components restart with them.
func (r Renewal) CheckTrustNow() error {
	t := &trust{r: r, asIs: true}
	return t.check()
}

// trust compares the certificate that each side shows with the CAs that the other side accepts.
type trust struct {
	r Renewal
	// renewed are the CAs that will have signed what is renewed, by the path of the certificate.
	renewed map[string]certs.Pair
	// only limits the comparison to those with a path; nil for all.
	only func(path string) bool
	// asIs says that nothing is renewed any more.
	asIs bool

	faults []string
	failed []error
}

// shown is a certificate that one side shows, and the other side's CAs.
type shown struct {
	who, path     string
	chain         []*x509.Certificate
	accepts, from string
	trusted       []*x509.Certificate
}

func (t *trust) check() error {
	t.components()
	t.kubeconfigs()
	t.kubelet()
	switch {
	case len(t.failed) > 0:
		return errors.WithMessage(t.failed[0], "whether clients and servers trust each other was not checked")
	case len(t.faults) == 0:
		return nil
	}
	message := "clients and servers of this node would refuse each other's certificates, so nothing was renewed or restarted"
	if t.asIs {
		message = "clients and servers of this node would refuse each other's certificates, so nothing was restarted"
	}
	return fault.New(message+":\n  - "+strings.Join(t.faults, "\n  - "),
		"while a CA is being replaced, its file must hold both, and the first one signs: see \"Replacing a CA\" in docs/cluster-life.md; "+
			"or put the former CA and its key back. Then run the same command again")
}

// compare notes a certificate that the other side wouldn't accept. What doesn't exist is not compared.
func (t *trust) compare(s shown) {
	if len(s.chain) == 0 || len(s.trusted) == 0 || t.only != nil && !t.only(s.path) && !t.only(s.from) {
		return
	}
	if accepted(s.chain, s.trusted, t.r.Store.Host.Now()) == nil {
		return
	}
	t.faults = append(t.faults, fmt.Sprintf("%s: %s comes from CA %s, but %s accepts only %s (%s)",
		s.who, s.path, issuerOf(s.chain[0]), s.accepts, listed(s.trusted), s.from))
}

// accepted verifies a certificate as TLS does, at a moment at which it is valid: dates are not the question.
func accepted(chain, trusted []*x509.Certificate, now time.Time) error {
	leaf := chain[0]
	if now.After(leaf.NotAfter) {
		now = leaf.NotAfter
	}
	if now.Before(leaf.NotBefore) {
		now = leaf.NotBefore
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, ca := range trusted {
		options.Roots.AddCert(ca)
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(options)
	return err
}

// issuerOf names the CA that signed a certificate. A CA stands for what it will sign. Two CAs of a cluster mostly have the same
// name, but not the same key.
func issuerOf(shown *x509.Certificate) string {
	if shown.IsCA {
		return named(shown.Subject.String(), shown.SubjectKeyId)
	}
	return named(shown.Issuer.String(), shown.AuthorityKeyId)
}

func named(name string, keyID []byte) string {
	return fmt.Sprintf("%q (key %s)", name, hex.EncodeToString(keyID[:min(8, len(keyID))]))
}

func listed(list []*x509.Certificate) string {
	var names []string
	for _, ca := range list {
		names = append(names, named(ca.Subject.String(), ca.SubjectKeyId))
	}
	return strings.Join(names, " and ")
}

// certificate returns what a file shows: the CA in place of a certificate that it will sign.
func (t *trust) certificate(path string) []*x509.Certificate {
	if ca := t.renewed[path]; ca.Cert != nil {
		return ca.Bundle()
	}
	return t.parse(path, certs.ParseChain)
}

func (t *trust) authorities(path string) []*x509.Certificate { return t.parse(path, certs.ParseCerts) }

// parse returns nil for a file that doesn't exist, and notes an error.
func (t *trust) parse(path string, parse func([]byte) ([]*x509.Certificate, error)) []*x509.Certificate {
	if path == "" {
		return nil
	}
	data, err := t.r.Store.Host.ReadFile(path)
	if err == nil {
		var list []*x509.Certificate
		if list, err = parse(data); err == nil {
			return list
		}
		err = errors.Wrap(err, path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.failed = append(t.failed, err)
	}
	return nil
}

// kubeconfigTrust returns the CAs that a kubeconfig file trusts, or will trust, and where they are.
func (t *trust) kubeconfigTrust(path string, data []byte) ([]*x509.Certificate, string) {
	trusted, file, err := kubeconfig.CAs(data)
	if err != nil {
		t.failed = append(t.failed, errors.Wrap(err, path))
		return nil, ""
	}
	if file != "" {
		return t.authorities(file), file
	}
	ca, known := t.renewed[path]
	if own, _ := certs.Find(t.r.Store.Config, certs.Kubelet); !t.asIs && t.r.Name == "" && path == t.r.Store.Files(own)[0] {
		pair, err := t.r.Store.CA(certs.CA)
		ca, known = pair, err == nil
	}
	if known {
		trusted = kubeconfig.WithCAs(trusted, ca.Bundle())
	}
	return trusted, path
}
