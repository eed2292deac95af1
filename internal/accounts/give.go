// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// Give gives a component the files it must read. It skips missing ones, such as an external CA's key or a skipped phase's files.
func (r Rootless) Give(component string) error {
	if !manifests.Rootless(r.Config) {
		return nil
	}
	groups, users, err := r.wanted()
	if err != nil {
		return err
	}
	for _, o := range manifests.Ownerships(r.Config) {
		if !slices.Contains(o.Components, component) {
			continue
		}
		owner := host.Owner{UID: users.ids[o.User], GID: groups.ids[o.Group]}
		if err := r.give(o, owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r Rootless) give(o manifests.Ownership, owner host.Owner) error {
	if !o.Tree {
		return r.Host.Give(o.Path, owner, o.Mode)
	}
	kept, err := r.Host.GiveTree(o.Path, owner)
	if len(kept) > 0 {
		r.UI.Warnf("%s: neither regular files nor directories of the same mount, so they keep their owner; "+
			"if %s needs what they lead to, give that to the user %s", strings.Join(kept, ", "), strings.Join(o.Components, ", "), o.User)
	}
	return err
}
