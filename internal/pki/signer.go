// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"path/filepath"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// SeveralCAs reports whether ca.crt holds more than the CA that signs, as while a CA is being replaced. The controller manager
// doesn't start with such a file to sign with.
func (s Store) SeveralCAs() (bool, error) {
	pair, err := s.signer()
	return len(pair.More) > 0 && pair.Key != nil, err
}

// EnsureSigner writes the CA that signs into a file of its own if ca.crt holds several, and keeps such a file current.
func (s Store) EnsureSigner() error {
	pair, err := s.signer()
	if err != nil || pair.Key == nil {
		return err
	}
	path := filepath.Join(s.Config.Paths.PKI, manifests.SignerFile)
	have, err := host.ReadIfExists(s.Host, path)
	if err != nil || have == nil && len(pair.More) == 0 {
		return err
	}
	changed, err := s.Host.WriteFile(path, certs.EncodeCerts(pair.Cert), 0o644)
	if changed {
		s.UI.Printf("Writing %s, with the CA that signs alone", path)
	}
	return err
}

// signer is the cluster's CA; the zero Pair if it isn't here.
func (s Store) signer() (certs.Pair, error) {
	row, _ := certs.Find(s.Config, certs.CA)
	cert, key, err := s.Read(row)
	if err != nil || cert == nil {
		return certs.Pair{}, err
	}
	return s.parse(row, cert, key)
}
