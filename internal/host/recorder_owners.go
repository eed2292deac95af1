// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"path/filepath"
)

// WriteOwned implements OwnerWriter.
func (r *recorder) WriteOwned(path string, data []byte, mode fs.FileMode, owner Owner) (bool, error) {
	before, known := Owner{}, r.isMissing(path) // a new file would be root's
	if !known {
		before, known = ownerBy(r.Lstat, path)
	}
	changed, err := r.write(path, data, mode, LooksSecret(data), func() (bool, error) { return r.writer.WriteOwned(path, data, mode, owner) })
	if changed {
		r.gave(path, before, known, owner)
	}
	return changed, err
}

// Give implements OwnerWriter.
func (r *recorder) Give(path string, owner Owner, mode fs.FileMode) error {
	before, known := ownerBy(r.Lstat, path)
	info, missing := r.Lstat(path)
	if err := r.writer.Give(path, owner, mode); err != nil {
		return err
	}
	r.gave(path, before, known, owner)
	if missing != nil || info.Mode() != mode {
		r.record(Action{Verb: Chmod, Path: filepath.Clean(path), Mode: mode})
	}
	return nil
}

// GiveTree implements OwnerWriter.
func (r *recorder) GiveTree(path string, owner Owner) ([]string, error) {
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
func ownerBy(stat func(string) (fs.FileInfo, error), path string) (whose Owner, known bool) {
	info, err := stat(path)
	if err != nil {
		return Owner{}, false
	}
	return OwnerIn(info)
}

// gave records that path belongs to owner now, unless it did before.
func (r *recorder) gave(path string, before Owner, known bool, owner Owner) {
	if known && before == owner {
		return
	}
	r.record(Action{Verb: Chown, Path: filepath.Clean(path), UID: owner.UID, GID: owner.GID})
}
