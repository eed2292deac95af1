// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"io/fs"
	"slices"

	"github.com/pkg/errors"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// narrowMode gives a private key mode 0600 if it had a wider one. accounts.Rootless.Give does that for rootless components' keys.
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
	pod, found := thisnode.StaticPod(s.Host, thisnode.StaticPodPath(s.Config, component))
	if !found || pod.Spec.SecurityContext == nil {
		return host.Owner{}, false
	}
	user, group := pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup
	return host.Owner{UID: int(ptr.Deref(user, 0)), GID: int(ptr.Deref(group, 0))}, ptr.Deref(user, 0) != 0
}
