// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"crypto/x509"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// Expiration is until when a certificate is valid.
type Expiration struct {
	// Name is that of the row: "apiserver", "admin.conf", "ca".
	Name string
	// CA is the row that issued it; empty for a CA.
	CA string
	// NotAfter is zero where the certificate is missing.
	NotAfter time.Time
	Missing  bool
	// External tells that the key which signs it is not on this host.
	External bool
}

// Expirations returns the leaf certificates of this node that Slipway issues,
// and the CAs, each sorted by name. One that cannot be read is an error.
func Expirations(env *Env) (leaves, authorities []Expiration, err error) {
	external := map[string]bool{}
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			continue
		}
		e, hasKey, err := expirationOfPair(env, spec)
		if err != nil {
			return nil, nil, err
		}
		e.External = !e.Missing && !hasKey
		external[spec.Name] = e.External
		authorities = append(authorities, e)
	}
	for _, r := range renewable(env) {
		e, err := r.expiration(env)
		if err != nil {
			return nil, nil, err
		}
		e.External = external[r.spec.CA]
		leaves = append(leaves, e)
	}
	byName := func(a, b Expiration) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(leaves, byName)
	slices.SortFunc(authorities, byName)
	return leaves, authorities, nil
}

func expirationOfPair(env *Env, spec certs.Spec) (e Expiration, hasKey bool, err error) {
	store := pairStore{env}
	data, key, err := store.read(spec)
	if err != nil {
		return e, false, err
	}
	e = Expiration{Name: spec.Name, CA: spec.CA, Missing: data == nil}
	if e.Missing {
		return e, key != nil, nil
	}
	list, err := certs.ParseCerts(data)
	if err != nil {
		path, _ := store.paths(spec)
		return e, false, errors.Wrap(err, path)
	}
	e.NotAfter = list[0].NotAfter
	return e, key != nil, nil
}

// renewal is a certificate that `certs renew` renews: a row of the certificate
// table, or the one in a kubeconfig file.
type renewal struct {
	spec certs.Spec
	file string // of the kubeconfig, below its folder; empty for a pair
}

// renewable are the rows of this node. The kubelet renews its own certificate.
func renewable(env *Env) []renewal {
	var list []renewal
	for _, spec := range certs.Specs(env.Config) {
		if !spec.IsCA() {
			list = append(list, renewal{spec: spec})
		}
	}
	for _, k := range kubeconfig.Specs(env.Config) {
		if k.Name != "kubelet" {
			list = append(list, renewal{spec: k.Certificate(), file: k.File})
		}
	}
	return list
}

func (r renewal) path(env *Env) string {
	if r.file == "" {
		path, _ := pairStore{env}.paths(r.spec)
		return path
	}
	return filepath.Join(env.Config.Paths.Kubeconfigs, r.file)
}

func (r renewal) expiration(env *Env) (Expiration, error) {
	e := Expiration{Name: r.spec.Name, CA: r.spec.CA}
	cert, err := r.current(env)
	if err != nil || cert == nil {
		e.Missing = err == nil
		return e, err
	}
	e.NotAfter = cert.NotAfter
	return e, nil
}

// current is the certificate as it is now, nil where there is none.
func (r renewal) current(env *Env) (*x509.Certificate, error) {
	path := r.path(env)
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return nil, err
	}
	if r.file != "" {
		var file string
		data, file, err = kubeconfig.ClientCertificate(data)
		if err == nil && file != "" {
			data, err = env.Host.ReadFile(file)
		}
		if err != nil {
			return nil, r.broken(path, err)
		}
	}
	cert, err := certs.FirstCert(data)
	if err != nil {
		return nil, r.broken(path, err)
	}
	return cert, nil
}

// broken says what to do about a file that is none of a certificate.
func (r renewal) broken(path string, err error) error {
	return errors.Errorf("%s: %v. Delete it and run `slipway init phase %s` with the same configuration, or put the right file there.",
		path, err, r.phase())
}
