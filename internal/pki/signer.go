// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
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
	pod, _ := manifests.DecodePod(changed) // a broken Pod mounts nothing
	if onHost, found := thisnode.OnHost(pod, s.signerPath()); !found || onHost != s.signerPath() {
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

// GenerateCSRs writes a key and a signing request for each certificate of a control plane node, and kubeconfig files without the
// certificate, for a cluster whose CA keys are kept elsewhere. If any file exists, it returns an error and writes nothing.
func (s Store) GenerateCSRs() error {
	requests := s.requests()
	for _, r := range requests {
		for _, path := range []string{r.keyPath, r.csrPath} {
			_, err := s.Host.Lstat(path)
			if err == nil {
				err = fs.ErrExist
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return errors.Wrapf(err, "%s: a key that may be in use is never overwritten; name an empty directory with --cert-dir and --kubeconfig-dir", path)
			}
		}
	}
	for _, r := range requests {
		if err := s.writeRequest(r); err != nil {
			return err
		}
		s.UI.Printf("Wrote %s and %s", r.keyPath, r.csrPath)
	}
	return nil
}

// request is a signing request to write. The key goes into its own file or into a kubeconfig file.
type request struct {
	row              certs.Spec
	keyPath, csrPath string
}

func (s Store) requests() []request {
	var list []request
	for _, row := range certs.Specs(s.Config) {
		if row.IsCA() {
			continue
		}
		path := filepath.Join(s.Config.Paths.PKI, row.File)
		r := request{row, path + ".key", path + ".csr"}
		if row.Kubeconfig != "" {
			path = s.Files(row)[0]
			r = request{row, path, path + ".csr"}
		}
		list = append(list, r)
	}
	return list
}

func (s Store) writeRequest(r request) error {
	key, err := s.NewKey()
	if err != nil {
		return err
	}
	csr, err := certs.Request(r.row, key)
	if err != nil {
		return err
	}
	data, err := certs.EncodeKey(key)
	if err == nil && r.row.Kubeconfig != "" {
		data, err = kubeconfig.Build(kubeconfig.SpecOf(s.Config, r.row), s.Config, nil, certs.Pair{Key: key})
	}
	if err == nil {
		err = s.Host.EnsureDir(filepath.Dir(r.keyPath), 0o755)
	}
	if err == nil {
		_, err = s.Host.WriteSecret(r.keyPath, data)
	}
	if err == nil {
		_, err = s.Host.WriteFile(r.csrPath, csr, 0o600)
	}
	return err
}
