// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

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
	csr, err := certs.Request(r.row, key, rand.Reader)
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
