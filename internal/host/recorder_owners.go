// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"path/filepath"
)

// WriteOwned implements Owners.
func (r *recorder) WriteOwned(path string, data []byte, mode fs.FileMode, owner Owner) (bool, error) {
	before := Owner{} // what is new would be root's
	if info, err := r.Lstat(path); err == nil {
		before, _ = OwnerIn(info)
	}
	changed, err := r.write(path, data, mode, LooksSecret(data), func() (bool, error) { return r.Host.WriteOwned(path, data, mode, owner) })
	if changed && before != owner {
		r.gave(path, owner)
	}
	return changed, err
}

// Give implements Owners.
func (r *recorder) Give(path string, owner Owner, mode fs.FileMode) error {
	info, _ := r.Lstat(path)
	if err := r.Host.Give(path, owner, mode); err != nil {
		return err
	}
	if have, known := OwnerIn(info); !known || have != owner {
		r.gave(path, owner)
	}
	if info.Mode() != mode {
		r.record(Action{Verb: Chmod, Path: filepath.Clean(path), Mode: mode})
	}
	return nil
}

// GiveTree implements Owners.
func (r *recorder) GiveTree(path string, owner Owner) ([]string, error) {
	info, _ := r.Stat(path)
	kept, err := r.Host.GiveTree(path, owner)
	if err != nil {
		return kept, err
	}
	if have, known := OwnerIn(info); !known || have != owner {
		r.gave(path, owner)
	}
	return kept, nil
}

func (r *recorder) gave(path string, owner Owner) {
	r.record(Action{Verb: Chown, Path: filepath.Clean(path), UID: owner.UID, GID: owner.GID})
}
