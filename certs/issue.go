// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Backdate is how long before its issue a certificate becomes valid, for nodes whose clocks are behind.
const Backdate = 5 * time.Minute

// Pair is a certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer // nil if it's kept elsewhere, such as an external CA's
	// More are the certificates after Cert in its file. While a cluster moves from one CA to another, the CA's file has several:
	// Cert signs, and all are trusted.
	More []*x509.Certificate
}

// Bundle returns every certificate of the file, Cert first; none for the zero Pair.
func (p Pair) Bundle() []*x509.Certificate {
	if p.Cert == nil {
		return nil
	}
	return append([]*x509.Certificate{p.Cert}, p.More...)
}

// NewKey generates a private key. Go takes the random numbers for keys and signatures from the system's secure source alone.
func NewKey(algorithm config.EncryptionAlgorithm) (crypto.Signer, error) {
	switch algorithm {
	case config.RSA2048:
		return rsa.GenerateKey(rand.Reader, 2048)
	case config.RSA3072:
		return rsa.GenerateKey(rand.Reader, 3072)
	case config.RSA4096:
		return rsa.GenerateKey(rand.Reader, 4096)
	case config.ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case config.ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	}
	return nil, errors.Errorf("unknown encryptionAlgorithm %q", algorithm)
}

// NewCA returns a self-signed CA certificate, valid for the configured caCertificateValidityPeriod.
func NewCA(spec Spec, n *config.Node, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	template := newTemplate(spec, key.Public(), now, n.Cluster.CACertificateValidityPeriod.Duration)
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	return sign(spec, template, template, key.Public(), key)
}

// Issue returns a leaf certificate signed by ca, valid for the configured certificateValidityPeriod, but no longer than its CA.
// It's an error if the CA has no key or isn't valid now.
func Issue(spec Spec, n *config.Node, ca Pair, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	if ca.Key == nil {
		return nil, errors.Errorf("certificate %s: the private key of its CA %q is not on this host; "+
			"have the owner of the CA sign it", spec.Name, spec.CA)
	}
	if now.Before(ca.Cert.NotBefore) || now.After(ca.Cert.NotAfter) {
		return nil, errors.Errorf("certificate %s: its CA %q is valid from %s to %s, but it is %s now",
			spec.Name, spec.CA, stamp(ca.Cert.NotBefore), stamp(ca.Cert.NotAfter), stamp(now))
	}
	template := newTemplate(spec, key.Public(), now, n.Cluster.CertificateValidityPeriod.Duration)
	if template.NotAfter.After(ca.Cert.NotAfter) {
		template.NotAfter = ca.Cert.NotAfter
	}
	cert, err := sign(spec, template, ca.Cert, key.Public(), ca.Key)
	if err != nil {
		return nil, err
	}
	if err := allows(spec, n, cert, ca); err != nil {
		return nil, err
	}
	return cert, nil
}

// PublicKeyPin returns a --discovery-token-ca-cert-hash: "sha256:" and the SHA-256 of the SubjectPublicKeyInfo in hexadecimal.
func PublicKeyPin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newTemplate has no serial number: signing adds one with 159 random bits (RFC 5280 allows 20 octets, CAs need 64 random bits).
func newTemplate(spec Spec, public crypto.PublicKey, now time.Time, lifetime time.Duration) *x509.Certificate {
	usage := x509.KeyUsageDigitalSignature
	if _, ok := public.(*rsa.PublicKey); ok {
		// Only RSA keys can encipher keys (RFC 8813, section 3).
		usage |= x509.KeyUsageKeyEncipherment
	}
	ips := make([]net.IP, 0, len(spec.IPs))
	for _, ip := range spec.IPs {
		ips = append(ips, ip.AsSlice())
	}
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: spec.CommonName, Organization: spec.Organization},
		DNSNames:              spec.DNSNames,
		IPAddresses:           ips,
		NotBefore:             now.Add(-Backdate).UTC(),
		NotAfter:              now.Add(lifetime).UTC(),
		KeyUsage:              usage,
		ExtKeyUsage:           spec.Usages,
		BasicConstraintsValid: true,
	}
}

func sign(spec Spec, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, errors.Wrapf(err, "signing certificate %s", spec.Name)
	}
	cert, err := x509.ParseCertificate(der)
	return cert, errors.Wrapf(err, "certificate %s", spec.Name)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// KubeletServingAlgorithm is the algorithm of a kubelet's own keys, independent of the cluster's other keys.
const KubeletServingAlgorithm = config.ECDSAP256

// KubeletServing returns a self-signed serving certificate for a node's name, such as its kubelet would generate, see
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/
func KubeletServing(node string, key crypto.Signer, now time.Time, life time.Duration) (*x509.Certificate, error) {
	spec := Spec{Name: "kubelet-serving", CommonName: node, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip, err := netip.ParseAddr(node); err == nil {
		spec.IPs = []netip.Addr{ip}
	} else {
		spec.DNSNames = []string{node}
	}
	template := newTemplate(spec, key.Public(), now, life)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(public) // RFC 7093, section 2, method 4
	template.SubjectKeyId, template.AuthorityKeyId = id[:20], id[:20]
	return sign(spec, template, template, key.Public(), key)
}

// Without returns a certificate, only for Renewal, as if it weren't valid for some names and addresses.
func Without(cert *x509.Certificate, names []string) *x509.Certificate {
	changed := *cert
	changed.DNSNames = slices.DeleteFunc(slices.Clone(cert.DNSNames), func(name string) bool { return containsFold(names, name) })
	changed.IPAddresses = slices.DeleteFunc(slices.Clone(cert.IPAddresses), func(ip net.IP) bool { return containsIP(names, ip) })
	return &changed
}

// HasAny reports whether a certificate is for any of the names and addresses that its row doesn't have.
func HasAny(spec Spec, cert *x509.Certificate, names []string) bool {
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		ip, err := netip.ParseAddr(name)
		return containsFold(spec.DNSNames, name) || err == nil && slices.Contains(spec.IPs, ip.Unmap())
	})
	less := Without(cert, others)
	return len(less.DNSNames) < len(cert.DNSNames) || len(less.IPAddresses) < len(cert.IPAddresses)
}

func containsIP(list []string, ip net.IP) bool {
	return slices.ContainsFunc(list, func(s string) bool { return ip.Equal(net.ParseIP(s)) })
}

// Renewal returns the row for renewing a certificate: its content, plus its row's additions. So a name added by hand stays, and a
// new name in the configuration is added.
func Renewal(spec Spec, old *x509.Certificate) Spec {
	spec.CommonName, spec.Organization = old.Subject.CommonName, old.Subject.Organization
	s := sans{names: slices.Clone(spec.DNSNames), ips: slices.Clone(spec.IPs)}
	s.add(old.DNSNames...)
	for _, ip := range old.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok {
			s.addIP(addr)
		}
	}
	slices.Sort(s.names)
	spec.DNSNames, spec.IPs = s.names, s.ips
	spec.Usages = slices.Clone(spec.Usages)
	for _, usage := range old.ExtKeyUsage {
		if !slices.Contains(spec.Usages, usage) {
			spec.Usages = append(spec.Usages, usage)
		}
	}
	return spec
}

// AlgorithmOf returns the algorithm with which NewKey generates such a key; empty if it can't.
func AlgorithmOf(public crypto.PublicKey) config.EncryptionAlgorithm {
	switch key := public.(type) {
	case *rsa.PublicKey:
		switch key.N.BitLen() {
		case 3072:
			return config.RSA3072
		case 4096:
			return config.RSA4096
		}
		return config.RSA2048
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P384() {
			return config.ECDSAP384
		}
		return config.ECDSAP256
	}
	return ""
}

// Request returns a certificate signing request (RFC 2986) for the owner of an external CA, as PEM. It doesn't contain the
// usages: the owner adds them, see https://kubernetes.io/docs/setup/best-practices/certificates/
func Request(spec Spec, key crypto.Signer) ([]byte, error) {
	ips := make([]net.IP, 0, len(spec.IPs))
	for _, ip := range spec.IPs {
		ips = append(ips, ip.AsSlice())
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: spec.CommonName, Organization: spec.Organization},
		DNSNames:    spec.DNSNames,
		IPAddresses: ips,
	}, key)
	if err != nil {
		return nil, errors.Wrapf(err, "signing request of %s", spec.Name)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}
