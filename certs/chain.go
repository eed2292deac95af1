// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// checkIssuer accepts a certificate signed by an issuer, or through intermediate CAs in its file, as components show all of it.
func (f *faults) checkIssuer(spec Spec, pair Pair, issuers []*x509.Certificate, now time.Time) {
	chain, refusal := chainTo(pair.Cert, pair.More, issuers)
	if chain == nil {
		f.add(WrongIssuer, "not signed by its CA %q: %v (issuer %q)", spec.CA, refusal, pair.Cert.Issuer)
		return
	}
	for _, between := range chain[1 : len(chain)-1] {
		var of faults
		of.checkTime(between, now)
		for _, wrong := range of {
			f.add(wrong.Name, "the intermediate CA %q in its file: %s", between.Subject, wrong.Message)
		}
	}
	f.checkConstraints(spec, chain)
}

// chainTo returns the certificate, the intermediates up to a trusted CA, and that CA; nil and the reason if there's no way.
func chainTo(cert *x509.Certificate, intermediates, trusted []*x509.Certificate) (chain []*x509.Certificate, refusal error) {
	refusal = errors.New("the CA has no certificate")
	for _, ca := range trusted {
		if refusal = cert.CheckSignatureFrom(ca); refusal == nil {
			return []*x509.Certificate{cert, ca}, nil
		}
	}
	for i, between := range intermediates {
		if cert.CheckSignatureFrom(between) != nil {
			continue
		}
		rest := slices.Delete(slices.Clone(intermediates), i, i+1)
		if chain, _ := chainTo(between, rest, trusted); chain != nil {
			return append([]*x509.Certificate{cert}, chain...), nil
		}
	}
	return nil, refusal
}

// checkConstraints makes a verifier's other checks (RFC 5280, section 6) at a time when the chain is valid: see checkTime.
func (f *faults) checkConstraints(spec Spec, chain []*x509.Certificate) {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(chain[len(chain)-1])
	at := chain[0].NotBefore
	for _, c := range chain[1:] {
		between.AddCert(c)
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
	}
	usages := spec.Usages
	if f.has(WrongUsage) {
		usages = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	}
	for _, usage := range usages {
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			f.add(Restricted, "not allowed by its CA %q: %v", spec.CA, err)
			return
		}
	}
}

// CheckIssues checks that restrictions of a CA, such as name constraints, don't forbid its certificates for node n. It signs and
// throws away a certificate for each of the CA's rows.
func CheckIssues(ca Spec, n *config.Node, pair Pair, now time.Time) error {
	key, err := NewKey(config.ECDSAP256)
	if err != nil {
		return err
	}
	for _, spec := range Specs(n) {
		if spec.CA != ca.Name {
			continue
		}
		if _, err := Issue(spec, n, pair, key, now); err != nil {
			return err
		}
	}
	return nil
}

// allows returns an error if a certificate would be refused even though its CA has just signed it.
func allows(spec Spec, n *config.Node, cert *x509.Certificate, ca Pair) error {
	var found faults
	found.checkConstraints(spec, []*x509.Certificate{cert, ca.Cert})
	if len(found) == 0 {
		return nil
	}
	found[0].Message = fmt.Sprintf("it cannot sign the certificate %s: %s", spec.Name, found[0].Message)
	row, _ := Find(n, spec.CA)
	where := path.Join(n.Paths.PKI, row.CertFile())
	return &Error{Faults: found, Where: where, Fix: fmt.Sprintf(
		"put a CA into %s and %s that is not restricted like this one, or permits these names", where, path.Join(n.Paths.PKI, row.KeyFile()))}
}
