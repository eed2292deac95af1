// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
)

// leaveElsewhere takes out of missing the keys of CAs whose certificates are
// here, and returns their paths: without a certificate key, they are not asked
// for. A CA's key may be kept elsewhere, and what it signs for this node be
// brought here: https://kubernetes.io/docs/setup/best-practices/certificates/
// With a certificate key, what is missing is what an earlier download has not
// come to.
func leaveElsewhere(n *config.Node, missing map[string]string) (keys []string) {
	if !n.CertificateKey.IsZero() {
		return nil
	}
	for _, spec := range certs.Specs(n) {
		key, absent := missing[spec.Name+".key"]
		if spec.IsCA() && absent && missing[spec.Name+".crt"] == "" {
			keys = append(keys, key)
			delete(missing, spec.Name+".key")
		}
	}
	return keys
}

// lacksNothing says, all at once, which files a control plane that joins lacks
// and cannot get: without a certificate key nothing is downloaded, and what a CA
// signs whose key is kept elsewhere cannot be made here.
func lacksNothing(env *Env) error {
	n := env.Config
	if !n.CertificateKey.IsZero() {
		return nil
	}
	shared, err := missingShared(env.Host, n)
	if err != nil {
		return err
	}
	keys := leaveElsewhere(n, shared)
	signed, err := missingSigned(env, keys)
	if err != nil {
		return err
	}
	var lacks []string
	if len(shared) > 0 {
		lacks = append(lacks, "files that all control planes share: "+strings.Join(slices.Sorted(maps.Values(shared)), ", ")+
			"; give the certificate key with which they were uploaded (--certificate-key), or copy them from a control plane")
	}
	if len(signed) > 0 {
		lacks = append(lacks, "files that are signed with keys that are not here ("+strings.Join(keys, ", ")+"): "+strings.Join(signed, ", ")+
			"; give the certificate key, copy these keys from a control plane, or have their owner sign what is missing")
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.Errorf("this host lacks %s", strings.Join(lacks, ". It also lacks "))
}

// missingSigned are the files of a control plane of its own that are not here,
// and that are signed with one of these keys, which are not here either.
func missingSigned(env *Env, keys []string) ([]string, error) {
	n, store := env.Config, pairStore{env}
	elsewhere := map[string]bool{}
	var wanted []string
	for _, spec := range certs.Specs(n) { // each CA comes before what it signs
		cert, key := store.paths(spec)
		switch {
		case spec.IsCA():
			elsewhere[spec.Name] = slices.Contains(keys, key)
		case elsewhere[spec.CA]:
			wanted = append(wanted, cert, key)
		}
	}
	for _, spec := range kubeconfig.Specs(n) {
		if elsewhere[certs.CA] && slices.Contains([]string{"admin", "controller-manager", "scheduler"}, spec.Name) {
			wanted = append(wanted, filepath.Join(n.Paths.Kubeconfigs, spec.File))
		}
	}
	var missing []string
	for _, path := range wanted {
		switch _, err := env.Host.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, path)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}
