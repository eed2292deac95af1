// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// narrowMode gives a private key mode 0600 if its mode was wider. accounts.Rootless.Give does that for rootless components' keys.
func (s Store) narrowMode(path string, key []byte) error {
	ofComponent := func(o manifests.Ownership) bool { return o.Path == path }
	if manifests.Rootless(s.Config) && slices.ContainsFunc(manifests.Ownerships(s.Config), ofComponent) {
		return nil
	}
	narrowed, err := s.Host.WriteSecret(path, key)
	if narrowed {
		s.UI.Printf("Changed the mode of %s to 0600: only root can read it now", path)
	}
	return err
}

func (s Store) writePrivate(path string, data []byte) error {
	owner, known, err := s.ownerOf(path)
	if err != nil {
		return err
	}
	if known {
		_, err = s.Host.WriteOwned(path, data, 0o600, owner)
	} else {
		_, err = s.Host.WriteSecret(path, data)
	}
	return err
}

// ownerOf returns the owner for a file with a private key: its component's user on this host, or else the owner of the file to
// replace, if that's private. It doesn't ask the cluster, which may be down.
func (s Store) ownerOf(path string) (owner host.Owner, known bool, err error) {
	for _, o := range manifests.Ownerships(s.Config) {
		if o.Path != path || len(o.Components) != 1 {
			continue
		}
		if owner, found := s.runsAs(o.Components[0]); found {
			return owner, true, nil
		}
	}
	info, err := s.Host.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Owner{}, false, nil
	}
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		return host.Owner{}, false, err
	}
	owner, known = host.OwnerIn(info)
	return owner, known, nil
}

// runsAs returns the user of a component's static Pod on this host; found is false for root.
func (s Store) runsAs(component string) (owner host.Owner, found bool) {
	pod, found := thisnode.StaticPod(s.Host, s.Config.Paths.StaticPod(component))
	if !found || pod.Spec.SecurityContext == nil {
		return host.Owner{}, false
	}
	user, group := pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup
	return host.Owner{UID: int(ptr.Deref(user, 0)), GID: int(ptr.Deref(group, 0))}, ptr.Deref(user, 0) != 0
}

// ServiceAccountFiles returns the paths of the key pair for service account tokens: the private key, then the public key.
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
