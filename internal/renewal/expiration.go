// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renewal

import (
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/pki"
)

// Expiration says when a certificate expires.
type Expiration struct {
	// Name is that of the row: "apiserver", "admin.conf", "ca".
	Name string
	// CA is the name of the row that issued it; empty for a CA.
	CA string
	// NotAfter is zero if the certificate is missing.
	NotAfter time.Time
	Missing  bool
	// External reports that the key of the CA is not on this host.
	External bool
}

// Expirations returns the CAs of this node, and the certificates that `certs renew` renews, each sorted by name. One
// that cannot be read is an error.
func Expirations(s pki.Store) (leaves, authorities []Expiration, err error) {
	external := map[string]bool{}
	rows := certs.Specs(s.Config)
	for _, row := range sorted(rows, certs.Spec.IsCA) {
		e, err := expirationOfCA(s, row)
		if err != nil {
			return nil, nil, err
		}
		external[row.Name] = e.External
		authorities = append(authorities, e)
	}
	for _, row := range sorted(rows, certs.Spec.Renewable) {
		cert, err := s.Current(row)
		if err != nil {
			return nil, nil, err
		}
		e := Expiration{Name: row.Name, CA: row.CA, Missing: cert == nil, External: external[row.CA]}
		if cert != nil {
			e.NotAfter = cert.NotAfter
		}
		leaves = append(leaves, e)
	}
	return leaves, authorities, nil
}

func expirationOfCA(s pki.Store, row certs.Spec) (Expiration, error) {
	data, key, err := s.Read(row)
	if err != nil || data == nil {
		return Expiration{Name: row.Name, Missing: true}, err
	}
	list, err := certs.ParseCerts(data)
	if err != nil {
		return Expiration{}, errors.Wrap(err, s.Files(row)[0])
	}
	return Expiration{Name: row.Name, NotAfter: list[0].NotAfter, External: key == nil}, nil
}
