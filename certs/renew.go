// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net"
	"net/netip"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

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

// AlgorithmOf returns the algorithm with which NewKey generates a key like this one; empty if it can't.
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
func Request(spec Spec, key crypto.Signer, random io.Reader) ([]byte, error) {
	ips := make([]net.IP, 0, len(spec.IPs))
	for _, ip := range spec.IPs {
		ips = append(ips, ip.AsSlice())
	}
	der, err := x509.CreateCertificateRequest(random, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: spec.CommonName, Organization: spec.Organization},
		DNSNames:    spec.DNSNames,
		IPAddresses: ips,
	}, key)
	if err != nil {
		return nil, errors.Wrapf(err, "signing request of %s", spec.Name)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}
