// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// ServiceAccountFiles returns the paths of the key pair for service account tokens: the private key, then the public one.
func (s Store) ServiceAccountFiles() []string {
	dir := s.Config.Paths.PKI
	return []string{filepath.Join(dir, certs.ServiceAccountKey), filepath.Join(dir, certs.ServiceAccountPublicKey)}
}

// EnsureServiceAccountKeys is Ensure for the key pair of service account tokens. It derives a missing public key.
func (s Store) EnsureServiceAccountKeys(spare crypto.Signer) error {
	paths := s.ServiceAccountFiles()
	keyPath, pubPath := paths[0], paths[1]
	key, err := host.ReadIfExists(s.Host, keyPath)
	if err != nil {
		return err
	}
	pub, err := host.ReadIfExists(s.Host, pubPath)
	switch {
	case err != nil:
		return err
	case pub == nil:
		return s.writeServiceAccountKeys(keyPath, pubPath, key, spare)
	case key == nil:
		return fault.New(pubPath+" exists without its private key "+keyPath,
			"put the key there, or delete the public one and run the phase again")
	}
	if err := certs.CheckServiceAccountPair(key, pub); err != nil {
		return fault.WithRemedy(errors.Wrapf(err, "%s and %s", keyPath, pubPath), "put the right files there; "+
			"if you do not have the private key, delete both and run the phase again: the tokens of all service accounts must then be issued again")
	}
	s.UI.Printf("Keeping the key pair %q", certs.ServiceAccount)
	return s.narrowMode(keyPath, key)
}

func (s Store) writeServiceAccountKeys(keyPath, pubPath string, keyPEM []byte, spare crypto.Signer) error {
	key, err := s.keyFor(keyPath, keyPEM, spare)
	if err != nil {
		return err
	}
	s.UI.Printf("Generating the key pair %q", certs.ServiceAccount)
	if keyPEM, err = certs.EncodeKey(key); err != nil {
		return err
	}
	pub, err := certs.EncodePublicKey(key)
	if err != nil {
		return err
	}
	if err := s.Host.EnsureDir(s.Config.Paths.PKI, 0o755); err != nil {
		return err
	}
	if _, err := s.Host.WriteSecret(keyPath, keyPEM); err != nil {
		return err
	}
	_, err = s.Host.WriteFile(pubPath, pub, 0o600)
	return err
}
