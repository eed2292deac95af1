// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// SeveralCAs reports whether ca.crt holds more than the signing CA, as while a CA is being replaced. The controller manager won't
// start with several to sign with.
func (s Store) SeveralCAs() (bool, error) {
	pair, err := s.signer()
	return len(pair.More) > 0 && pair.Key != nil, err
}

// EnsureSigner writes the signing CA into a file of its own if ca.crt holds several, and keeps such a file current.
func (s Store) EnsureSigner() error {
	pair, err := s.signer()
	if err != nil || pair.Key == nil {
		return err
	}
	path := s.signerPath()
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

// signingFlag names the file with the controller manager's signing CA.
const signingFlag = "--cluster-signing-cert-file="

func (s Store) signerPath() string { return filepath.Join(s.Config.Paths.PKI, manifests.SignerFile) }

// SignerFlag makes the controller manager sign with EnsureSigner's file.
func (s Store) SignerFlag() string { return signingFlag + s.signerPath() }

// WithSigner returns the controller manager's manifest with SignerFlag if ca.crt holds several CAs. A manifest that names another
// file, names ca.crt in another way, or doesn't mount the signer's file stays as it is.
func (s Store) WithSigner(manifest []byte) ([]byte, error) {
	several, err := s.SeveralCAs()
	if err != nil || !several {
		return manifest, err
	}
	before := signingFlag + filepath.Join(s.Config.Paths.PKI, "ca.crt")
	changed := bytes.ReplaceAll(manifest, []byte(before+"\n"), []byte(s.SignerFlag()+"\n"))
	var pod corev1.Pod
	_ = yaml.Unmarshal(changed, &pod) // a broken one mounts nothing
	if onHost, found := thisnode.OnHost(&pod, s.signerPath()); !found || onHost != s.signerPath() {
		return manifest, nil
	}
	return changed, nil
}

// signer returns the cluster's CA; the zero Pair if it isn't here.
func (s Store) signer() (certs.Pair, error) {
	row, _ := certs.Find(s.Config, certs.CA)
	cert, key, err := s.Read(row)
	if err != nil || cert == nil {
		return certs.Pair{}, err
	}
	return s.parse(row, cert, key)
}
