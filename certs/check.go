// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// Check checks an existing certificate against its row. issuers are the certificates in its CA's file; none for a CA, which may
// be any CA of the user's, self-signed or not. The error is an *Error with all faults.
func Check(spec Spec, n *config.Node, pair Pair, issuers []*x509.Certificate, now time.Time) error {
	faults := Faults(spec, pair, issuers, now)
	if len(faults) == 0 {
		return nil
	}
	cert := path.Join(n.Paths.PKI, spec.CertFile())
	key := path.Join(n.Paths.PKI, spec.KeyFile())
	failure := &Error{Faults: faults, Where: cert}
	switch {
	case spec.IsCA():
		failure.Fix = fmt.Sprintf("put the right CA in %s and %s, from a backup or another control plane: a CA is never replaced, "+
			"because that would invalidate everything it has signed", cert, key)
	case failure.Only(Expired):
		failure.Fix = fmt.Sprintf("run `slipway certs renew %s`", spec.Name)
	default:
		failure.Fix = fmt.Sprintf("delete %s and %s and run `slipway init phase %s` with the same "+
			"configuration, or put the right files there", cert, key, spec.Phase())
	}
	return failure
}

// Faults is Check without the remedy, for a certificate in any file.
func Faults(spec Spec, pair Pair, issuers []*x509.Certificate, now time.Time) []fault.Finding {
	var f faults
	f.checkKey(pair)
	f.checkTime(pair.Cert, now)
	if spec.IsCA() {
		f.checkCA(pair.Cert)
		return f
	}
	f.checkUsages(spec, pair.Cert)
	f.checkSANs(spec, pair.Cert)
	f.checkSubject(spec, pair.Cert)
	f.checkIssuer(spec, pair, issuers, now)
	return f
}

type faults []fault.Finding

func (f *faults) has(name string) bool {
	return slices.ContainsFunc(*f, func(one fault.Finding) bool { return one.Name == name })
}

func (f *faults) add(name, format string, args ...any) {
	*f = append(*f, fault.NewFinding(name, fault.Error, "", format, args...))
}

func (f *faults) checkKey(pair Pair) {
	if weakness := weakKey(pair.Cert.PublicKey); weakness != "" {
		f.add(WeakKey, "%s", weakness)
	}
	if pair.Key != nil && !SameKey(pair.Key.Public(), pair.Cert.PublicKey) {
		f.add(KeyMismatch, "the private key belongs to another certificate")
	}
}

func (f *faults) checkTime(cert *x509.Certificate, now time.Time) {
	if now.Before(cert.NotBefore) {
		f.add(NotYetValid, "not valid before %s, and this host's clock says %s",
			stamp(cert.NotBefore), stamp(now))
	}
	if now.After(cert.NotAfter) {
		f.add(Expired, "expired at %s, and this host's clock says %s", stamp(cert.NotAfter), stamp(now))
	}
}

func (f *faults) checkCA(cert *x509.Certificate) {
	if !cert.BasicConstraintsValid || !cert.IsCA {
		f.add(NotCA, "not a CA certificate: the basic constraints lack CA:TRUE")
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		f.add(NotCA, "the key usage does not allow signing certificates")
	}
}

// checkUsages treats a certificate without a usage extension as unrestricted (RFC 5280, section 4.2.1.12).
func (f *faults) checkUsages(spec Spec, cert *x509.Certificate) {
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		f.add(WrongUsage, "the key usage lacks digital signature, which TLS needs")
	}
	restricted := len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) > 0
	if !restricted || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return
	}
	for _, usage := range spec.Usages {
		if !slices.Contains(cert.ExtKeyUsage, usage) {
			f.add(WrongUsage, "the extended key usage lacks %s", usageNames[usage])
		}
	}
}

var usageNames = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "server authentication",
	x509.ExtKeyUsageClientAuth: "client authentication",
}

func (f *faults) checkSANs(spec Spec, cert *x509.Certificate) {
	var missing []string
	for _, name := range spec.DNSNames {
		// VerifyHostname doesn't accept a wildcard as a host name, so look for it literally.
		if !containsFold(cert.DNSNames, name) && cert.VerifyHostname(name) != nil {
			missing = append(missing, name)
		}
	}
	for _, ip := range spec.IPs {
		if cert.VerifyHostname(ip.String()) != nil {
			missing = append(missing, ip.String())
		}
	}
	if len(missing) > 0 {
		f.add(MissingSAN, "not valid for %s", strings.Join(missing, ", "))
	}
}

// checkSubject applies to clients, which servers identify by their subject. The group system:masters may do anything.
func (f *faults) checkSubject(spec Spec, cert *x509.Certificate) {
	if slices.Contains(spec.Usages, x509.ExtKeyUsageServerAuth) ||
		slices.Contains(cert.Subject.Organization, "system:masters") {
		return
	}
	if cert.Subject.CommonName != spec.CommonName {
		f.add(WrongSubject, "the common name is %q, not %q", cert.Subject.CommonName, spec.CommonName)
	}
	for _, group := range spec.Organization {
		if !slices.Contains(cert.Subject.Organization, group) {
			f.add(WrongSubject, "the organization lacks %q", group)
		}
	}
}

// CheckServiceAccountPair checks that the public key file matches the private key. For earlier keys' tokens, it may hold several.
func CheckServiceAccountPair(key, pub []byte) error {
	signer, err := ParseKey(key)
	if err != nil {
		return errors.Wrap(err, "the private key")
	}
	if weakness := weakKey(signer.Public()); weakness != "" {
		return errors.Errorf("the private key: %s", weakness)
	}
	if _, ok := signer.Public().(ed25519.PublicKey); ok {
		return errors.New("the private key: service account tokens can be signed with RSA or ECDSA only")
	}
	list, err := parsePublicKeys(pub)
	if err != nil {
		return errors.Wrap(err, "the public key")
	}
	for _, public := range list {
		if SameKey(signer.Public(), public) {
			return nil
		}
	}
	return errors.New("the public key does not belong to the private key; " +
		"delete the public key's file; it is then derived from the private key again")
}

// weakKey returns why components shouldn't use a key; empty for a good key. The limits come from NIST SP 800-57 and Go's TLS.
func weakKey(public crypto.PublicKey) string {
	switch key := public.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 {
			return fmt.Sprintf("the RSA key of %d bits is too weak; use 2048 or more", bits)
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P224() {
			return "the ECDSA key uses curve P-224, which TLS does not support; use P-256 or P-384"
		}
	case ed25519.PublicKey:
	default:
		return "the type of the key is not supported; use RSA or ECDSA"
	}
	return ""
}

func SameKey(a, b crypto.PublicKey) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

func containsFold(list []string, name string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
}

// Names of findings about a certificate, for code that chooses a reaction.
const (
	KeyMismatch  = "key mismatch"  // the key file belongs to another certificate
	WeakKey      = "weak key"      // RSA below 2048 bits, or a curve that TLS doesn't support
	NotYetValid  = "not yet valid" // the validity begins in the future
	Expired      = "expired"       // the validity is over
	NotCA        = "not a CA"      // a CA that mustn't sign certificates
	WrongIssuer  = "wrong issuer"  // a leaf that its CA didn't sign
	Restricted   = "restricted"    // the CA's constraints forbid the leaf
	WrongUsage   = "wrong usage"   // a leaf that mustn't be a server or a client
	MissingSAN   = "missing SAN"   // lacks a name or address that others connect to
	WrongSubject = "wrong subject" // a client that the server would take for another
)

// Error has all faults of an existing certificate, and the remedy.
type Error struct {
	Faults []fault.Finding
	Where  string
	Fix    string // the remedy, in the imperative
}

func (e *Error) Remedy() string { return e.Fix }

// Error lists several faults on a line each.
func (e *Error) Error() string {
	if len(e.Faults) == 1 {
		return fmt.Sprintf("%s: %s", e.Where, e.Faults[0].Message)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults:", e.Where, len(e.Faults))
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n  - %s", f.Message)
	}
	return b.String()
}

// Only reports whether every fault has one of the names. Callers treat some as a warning.
func (e *Error) Only(names ...string) bool {
	return !slices.ContainsFunc(e.Faults, func(f fault.Finding) bool { return !slices.Contains(names, f.Name) })
}
