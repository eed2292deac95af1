// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto"
	"crypto/rand"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// GenerateCSRs writes a new key and a signing request for each certificate of
// a control plane node, and kubeconfig files that wait for their certificate,
// for a cluster whose CAs are kept elsewhere. A file that exists already is an
// error before anything is written.
func GenerateCSRs(env *Env) error {
	requests := csrs(env)
	for _, r := range requests {
		for _, path := range []string{r.keyPath, r.csrPath} {
			if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return errors.Wrapf(orExists(err), "%s: a key that may be in use is never overwritten; name an empty folder with --cert-dir and --kubeconfig-dir", path)
			}
		}
	}
	for _, r := range requests {
		if err := r.write(env); err != nil {
			return err
		}
		env.UI.Printf("Written %s and %s", r.keyPath, r.csrPath)
	}
	return nil
}

func orExists(err error) error {
	if err == nil {
		return fs.ErrExist
	}
	return err
}

// csr is a request to write; the key goes into a file of its own, or into a
// kubeconfig.
type csr struct {
	spec             certs.Spec
	keyPath, csrPath string
	encode           func(key crypto.Signer) ([]byte, error)
}

func csrs(env *Env) []csr {
	var list []csr
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			path := filepath.Join(env.Config.Paths.PKI, spec.File)
			list = append(list, csr{spec, path + ".key", path + ".csr", certs.EncodeKey})
		}
	}
	for _, k := range kubeconfig.Specs(env.Config) {
		path := filepath.Join(env.Config.Paths.Kubeconfigs, k.File)
		list = append(list, csr{k.Certificate(), path, path + ".csr", func(key crypto.Signer) ([]byte, error) {
			return kubeconfig.BuildForRequest(k, env.Config, key)
		}})
	}
	return list
}

func (r csr) write(env *Env) error {
	key, err := newKey(env)
	if err != nil {
		return err
	}
	request, err := certs.Request(r.spec, key, rand.Reader)
	if err != nil {
		return err
	}
	data, err := r.encode(key)
	if err != nil {
		return err
	}
	if err := env.Host.EnsureDir(filepath.Dir(r.keyPath), 0o755); err != nil {
		return err
	}
	if _, err := env.Host.WriteSecret(r.keyPath, data); err != nil {
		return err
	}
	_, err = env.Host.WriteFile(r.csrPath, request, 0o600)
	return err
}
