// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// Shared lists the files that all control planes share, and of which this host has no current copy.
type Shared struct {
	// Missing maps keys in the Secret kube-system/kubeadm-certs to the paths of the files to download.
	Missing map[string]string
	// ExternalKeys lists the paths of CA keys kept elsewhere: the CA's certificate is here, but no certificate key to download its key.
	// Then the CA's certificates for this node must be brought here: https://kubernetes.io/docs/setup/best-practices/certificates/
	ExternalKeys []string
}

// IsShared reports whether all control planes share the file at path.
func IsShared(n *config.Node, path string) bool {
	return slices.Contains(slices.Collect(maps.Values(manifests.SharedFiles(n))), path)
}

func (s Store) MissingShared() (Shared, error) {
	shared := Shared{Missing: map[string]string{}}
	for key, path := range manifests.SharedFiles(s.Config) {
		missing, err := s.missing(path)
		if err != nil {
			return Shared{}, err
		}
		if len(missing) > 0 || key == manifests.SharedEncryption && s.mayBeStale(path) {
			shared.Missing[key] = path
		}
	}
	if !s.Config.CertificateKey.IsZero() { // an earlier download may have been interrupted
		return shared, nil
	}
	for _, row := range certs.Specs(s.Config) {
		key, absent := shared.Missing[row.Name+".key"]
		if row.IsCA() && absent && shared.Missing[row.Name+".crt"] == "" {
			shared.ExternalKeys = append(shared.ExternalKeys, key)
			delete(shared.Missing, row.Name+".key")
		}
	}
	return shared, nil
}

// mayBeStale reports whether a join that was interrupted early has downloaded a file: encryption keys may have been rotated since.
func (s Store) mayBeStale(path string) bool {
	return !s.Config.CertificateKey.IsZero() && s.Host.Unchanged(path) && !thisnode.HasJoined(s.Host, s.Config)
}

// CheckJoin reports, all at once, files that a joining control plane lacks and can't get: it needs a certificate key to download
// them, or the CA's key to issue certificates.
func (s Store) CheckJoin() error {
	if !s.Config.CertificateKey.IsZero() {
		return nil
	}
	shared, err := s.MissingShared()
	if err != nil {
		return err
	}
	signed, err := s.missingSigned(shared.ExternalKeys)
	if err != nil {
		return err
	}
	var lacks []string
	if len(shared.Missing) > 0 {
		lacks = append(lacks, "files that all control planes share: "+strings.Join(slices.Sorted(maps.Values(shared.Missing)), ", ")+
			"; give the certificate key with which they were uploaded (--certificate-key), or copy them from a control plane")
	}
	if len(signed) > 0 {
		lacks = append(lacks, "files signed with keys that are not on this host ("+strings.Join(shared.ExternalKeys, ", ")+"): "+strings.Join(signed, ", ")+
			"; give the certificate key, copy these keys from a control plane, or have their owner sign the missing files")
	}
	if len(lacks) == 0 {
		return nil
	}
	return errors.Errorf("this host lacks %s", strings.Join(lacks, ". It also lacks "))
}

// missingSigned returns this host's missing files that a joining control plane would sign with one of these CA keys.
func (s Store) missingSigned(keys []string) ([]string, error) {
	elsewhere := map[string]bool{}
	var wanted []string
	for _, row := range certs.Specs(s.Config) { // each CA comes before its certificates
		switch {
		case row.IsCA():
			_, key := s.paths(row)
			elsewhere[row.Name] = slices.Contains(keys, key)
		case row.OnJoin() && elsewhere[row.CA]:
			wanted = append(wanted, s.Files(row)...)
		}
	}
	return s.missing(wanted...)
}

func (s Store) missing(paths ...string) ([]string, error) {
	var missing []string
	for _, path := range paths {
		switch _, err := s.Host.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, path)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}
