// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"io"
	"math/big"
	"net"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// backdate is how long before its issue a certificate begins to be valid, for
// the nodes whose clock is behind.
const backdate = 5 * time.Minute

// Pair is a certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	// Key is nil where the key is kept elsewhere, as with an external CA.
	Key crypto.Signer
	// More are the certificates that follow Cert in its file. A CA file has
	// some while the cluster moves from one CA to another: Cert is the one
	// that signs, all are trusted.
	More []*x509.Certificate
}

// Bundle is every certificate of the file, Cert first; none for no pair.
func (p Pair) Bundle() []*x509.Certificate {
	if p.Cert == nil {
		return nil
	}
	return append([]*x509.Certificate{p.Cert}, p.More...)
}

// NewKey generates a private key. Go's key generation draws from the system's
// secure source and heeds random only under GODEBUG=cryptocustomrand=1.
func NewKey(algorithm config.EncryptionAlgorithm, random io.Reader) (crypto.Signer, error) {
	switch algorithm {
	case config.RSA2048:
		return rsa.GenerateKey(random, 2048)
	case config.RSA3072:
		return rsa.GenerateKey(random, 3072)
	case config.RSA4096:
		return rsa.GenerateKey(random, 4096)
	case config.ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), random)
	case config.ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), random)
	}
	return nil, errors.Errorf("encryptionAlgorithm %q is not known", algorithm)
}

// NewCA returns the certificate of a CA that signs itself with key, valid for
// the configuration's caCertificateValidityPeriod.
func NewCA(spec Spec, n *config.Node, key crypto.Signer, now time.Time, random io.Reader) (*x509.Certificate, error) {
	template, err := newTemplate(spec, key.Public(), now, n.Cluster.CACertificateValidityPeriod.Duration, random)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	return sign(spec, template, template, key.Public(), key, random)
}

// Issue returns the certificate of a leaf, signed by ca, valid for the
// configuration's certificateValidityPeriod, but no longer than its CA. A CA
// without its key, or that is not valid now, is an error.
func Issue(spec Spec, n *config.Node, ca Pair, key crypto.Signer, now time.Time, random io.Reader) (*x509.Certificate, error) {
	if ca.Key == nil {
		return nil, errors.Errorf("certificate %s: there is no private key of its CA %q to sign with; "+
			"have the owner of the CA issue it", spec.Name, spec.CA)
	}
	if now.Before(ca.Cert.NotBefore) || now.After(ca.Cert.NotAfter) {
		return nil, errors.Errorf("certificate %s: its CA %q is valid from %s to %s only, and it is %s now",
			spec.Name, spec.CA, stamp(ca.Cert.NotBefore), stamp(ca.Cert.NotAfter), stamp(now))
	}
	template, err := newTemplate(spec, key.Public(), now, n.Cluster.CertificateValidityPeriod.Duration, random)
	if err != nil {
		return nil, err
	}
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	return sign(spec, template, ca.Cert, key.Public(), ca.Key, random)
}

// PublicKeyPin is the fingerprint of a CA's public key, in the form that
// --discovery-token-ca-cert-hash takes: "sha256:" and the hex SHA-256 of the
// certificate's SubjectPublicKeyInfo.
func PublicKeyPin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func newTemplate(
	spec Spec, public crypto.PublicKey, now time.Time, lifetime time.Duration, random io.Reader,
) (*x509.Certificate, error) {
	serial, err := newSerial(random)
	if err != nil {
		return nil, errors.Wrapf(err, "certificate %s: no serial number", spec.Name)
	}
	usage := x509.KeyUsageDigitalSignature
	if _, ok := public.(*rsa.PublicKey); ok {
		// Only RSA can encipher keys (RFC 8813, section 3).
		usage |= x509.KeyUsageKeyEncipherment
	}
	ips := make([]net.IP, 0, len(spec.IPs))
	for _, ip := range spec.IPs {
		ips = append(ips, ip.AsSlice())
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: spec.CommonName, Organization: spec.Organization},
		DNSNames:              spec.DNSNames,
		IPAddresses:           ips,
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(lifetime).UTC(),
		KeyUsage:              usage,
		ExtKeyUsage:           spec.Usages,
		BasicConstraintsValid: true,
	}, nil
}

func sign(
	spec Spec, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer, random io.Reader,
) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(random, template, parent, public, signer)
	if err != nil {
		return nil, errors.Wrapf(err, "signing certificate %s", spec.Name)
	}
	cert, err := x509.ParseCertificate(der)
	return cert, errors.Wrapf(err, "certificate %s", spec.Name)
}

// newSerial returns a positive number of 16 octets, 126 bits of it random:
// RFC 5280 allows 20 octets, public CAs must use 64 random bits.
func newSerial(random io.Reader) (*big.Int, error) {
	var octets [16]byte
	if _, err := io.ReadFull(random, octets[:]); err != nil {
		return nil, err
	}
	octets[0] = octets[0]&0x7f | 0x40
	return new(big.Int).SetBytes(octets[:]), nil
}

// stamp writes a moment the way people compare it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
