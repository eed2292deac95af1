// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"io/fs"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/host"
)

// WriteOwned implements OwnerWriter.
func (r *recorder) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	before, known := host.Owner{}, r.isMissing(path) // a new file would be root's
	if !known {
		before, known = ownerBy(r.Lstat, path)
	}
	changed, err := r.write(path, data, mode, host.LooksSecret(data), func() (bool, error) { return r.writer.WriteOwned(path, data, mode, owner) })
	if changed {
		r.gave(path, before, known, owner)
	}
	return changed, err
}

// Give implements OwnerWriter.
func (r *recorder) Give(path string, owner host.Owner, mode fs.FileMode) error {
	before, known := ownerBy(r.Lstat, path)
	info, seen := r.Lstat(path)
	if err := r.writer.Give(path, owner, mode); err != nil {
		return err
	}
	r.gave(path, before, known, owner)
	if seen == nil && info.Mode() != mode {
		r.record(host.Action{Verb: host.Chmod, Path: filepath.Clean(path), Mode: mode})
	}
	return nil
}

// GiveTree implements OwnerWriter.
func (r *recorder) GiveTree(path string, owner host.Owner) ([]string, error) {
	before, known := ownerBy(r.Stat, path)
	kept, err := r.writer.GiveTree(path, owner)
	if err == nil {
		r.gave(path, before, known, owner)
	}
	return kept, err
}

// LockAccounts implements OwnerWriter. The lock itself is not a change.
func (r *recorder) LockAccounts() (release func(), err error) { return r.writer.LockAccounts() }

// ownerBy returns the owner of path, if it can be read.
func ownerBy(stat func(string) (fs.FileInfo, error), path string) (whose host.Owner, known bool) {
	info, err := stat(path)
	if err != nil {
		return host.Owner{}, false
	}
	return host.OwnerIn(info)
}

// gave records that path belongs to owner now, unless it did before.
func (r *recorder) gave(path string, before host.Owner, known bool, owner host.Owner) {
	if known && before == owner {
		return
	}
	r.record(host.Action{Verb: host.Chown, Path: filepath.Clean(path), UID: owner.UID, GID: owner.GID})
}
