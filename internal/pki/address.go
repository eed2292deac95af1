// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"net"
	"net/netip"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// ForAddresses returns the certificates in the PKI directory that are valid for any of these addresses.
func (s Store) ForAddresses(addresses []netip.Addr) (rows []certs.Spec, err error) {
	for _, row := range certs.Specs(s.Config) {
		if row.IsCA() || row.Kubeconfig != "" {
			continue
		}
		cert, err := s.Current(row)
		if err != nil {
			return nil, err
		}
		if cert != nil && slices.ContainsFunc(cert.IPAddresses, isOneOf(addresses)) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func isOneOf(addresses []netip.Addr) func(net.IP) bool {
	return func(ip net.IP) bool {
		addr, ok := netip.AddrFromSlice(ip)
		return ok && slices.Contains(addresses, addr.Unmap())
	}
}

// Readdress issues a row's certificate again for the same key, with to in place of the addresses in from. Everything else is as it
// was, also how long it's valid, because the cluster's configuration may be out of reach.
func (s Store) Readdress(row certs.Spec, from []netip.Addr, to netip.Addr) error {
	old, err := s.Current(row)
	if err != nil {
		return err
	}
	_, data, err := s.Read(row)
	if err != nil {
		return err
	}
	certPath, keyPath := s.paths(row)
	key, err := certs.ParseKey(data)
	if err != nil {
		return errors.Wrap(err, keyPath)
	}
	ca, err := s.CA(row.CA)
	if err != nil {
		return err
	}
	wanted := readdressed(old, from, to)
	row.DNSNames, row.IPs = nil, nil
	n := s.Config.With(func(n *config.Node) {
		n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: old.NotAfter.Sub(old.NotBefore)}
	})
	cert, err := certs.Issue(certs.Renewal(row, wanted), n, ca, key, s.Host.Now())
	if err != nil {
		return err
	}
	s.UI.Printf("Writing %s for %s", certPath, to)
	return s.writePair(row, certs.Pair{Cert: cert, Key: key})
}

func readdressed(old *x509.Certificate, from []netip.Addr, to netip.Addr) *x509.Certificate {
	wanted := *old
	wanted.IPAddresses = append(slices.DeleteFunc(slices.Clone(old.IPAddresses), isOneOf(append([]netip.Addr{to}, from...))), to.AsSlice())
	return &wanted
}
