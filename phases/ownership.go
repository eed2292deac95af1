// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// applyOwnerships gives a component of a rootless control plane the files that
// it must read.
func applyOwnerships(env *Env, component string) error {
	if !manifests.Rootless(env.Config) {
		return nil
	}
	groups, users, err := wantedAccounts(env)
	if err != nil {
		return err
	}
	for _, o := range manifests.Ownerships(env.Config) {
		if !slices.Contains(o.Components, component) {
			continue
		}
		owner := host.Owner{UID: users.ids[o.User], GID: groups.ids[o.Group]}
		// What does not exist (yet) is left out: a key of an external CA, or a
		// file of a phase that was skipped.
		if err := applyOwnership(env, o, owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func applyOwnership(env *Env, o manifests.Ownership, owner host.Owner) error {
	if !o.Tree {
		return env.Host.Give(o.Path, owner, o.Mode)
	}
	kept, err := env.Host.GiveTree(o.Path, owner)
	if len(kept) > 0 {
		env.UI.Warnf("%s: neither regular files nor directories of the same mount, so they keep their owner; "+
			"if %s needs what they lead to, give that to the user %s", strings.Join(kept, ", "), strings.Join(o.Components, ", "), o.User)
	}
	return err
}

// writePrivate writes a file that holds a private key, for whom it is to be
// read by.
func writePrivate(env *Env, path string, data []byte) error {
	owner, known, err := readerOf(env, path)
	if err != nil {
		return err
	}
	if known {
		_, err = env.Host.WriteOwned(path, data, 0o600, owner)
	} else {
		_, err = env.Host.WriteSecret(path, data)
	}
	return err
}

// readerOf finds whose a file with a private key must be: the user's that its
// component runs as on this host, as the cluster may be down that would tell; or
// else that of the file which is replaced, if it was private.
func readerOf(env *Env, path string) (host.Owner, bool, error) {
	for _, o := range manifests.Ownerships(env.Config) {
		if o.Path != path || len(o.Components) != 1 {
			continue
		}
		if owner, found := runsAs(env, o.Components[0]); found {
			return owner, true, nil
		}
	}
	info, err := env.Host.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Owner{}, false, nil
	}
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		return host.Owner{}, false, err
	}
	owner, known := host.OwnerIn(info)
	return owner, known, nil
}

// runsAs is the user, other than root, of a component's static Pod on this
// host.
func runsAs(env *Env, component string) (host.Owner, bool) {
	pod, found := thisnode.StaticPod(env.Host, thisnode.StaticPodPath(env.Config, component))
	if !found || pod.Spec.SecurityContext == nil {
		return host.Owner{}, false
	}
	user, group := pod.Spec.SecurityContext.RunAsUser, pod.Spec.SecurityContext.RunAsGroup
	return host.Owner{UID: int(ptr.Deref(user, 0)), GID: int(ptr.Deref(group, 0))}, ptr.Deref(user, 0) != 0
}
