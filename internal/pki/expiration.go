// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
)

type Expiration struct {
	Name     string // the row's: "apiserver", "admin.conf", "ca"
	CA       string // the issuing row's name; empty for a CA
	NotAfter time.Time
	Missing  bool
	// External reports that the CA's key isn't on this host.
	External bool
}

// Expirations returns this node's CAs and renewable certificates, each sorted by name. It's an error if one can't be read.
func Expirations(s Store) (leaves, authorities []Expiration, err error) {
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

func expirationOfCA(s Store, row certs.Spec) (Expiration, error) {
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
