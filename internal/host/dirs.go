// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// parentMode is the mode of folders that are made on the way to another.
const parentMode = 0o755

// EnsureDir implements FileWriter.
func (r *Real) EnsureDir(path string, mode fs.FileMode) error {
	path = filepath.Clean(r.path(path))
	return explain("make folder", path, ensureDir(path, mode))
}

func ensureDir(path string, mode fs.FileMode) error {
	info, err := folderInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := ensureParent(filepath.Dir(path)); err != nil {
			return err
		}
		return makeDir(path, mode)
	}
	if err != nil {
		return err
	}
	if narrowed, wider := narrow(info.Mode(), mode); wider {
		remember(path, info)
		return setDirMode(path, narrowed, false)
	}
	return nil
}

// ensureParent makes path and what is missing above it.
func ensureParent(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := ensureParent(filepath.Dir(path)); err != nil {
		return err
	}
	return makeDir(path, parentMode)
}

// narrow returns the mode that a folder gets where its own is wider than what
// is wanted, and whether that is so.
func narrow(have, want fs.FileMode) (fs.FileMode, bool) {
	excess := have.Perm() &^ want.Perm()
	if excess == 0 || have&fs.ModeSticky != 0 {
		return have, false
	}
	return have &^ excess, true
}

// makeDir makes one folder, durably. Another one may be making it at the same
// time.
func makeDir(path string, mode fs.FileMode) error {
	err := unix.Mkdir(path, uint32(mode.Perm()))
	if err == unix.EEXIST {
		_, err := folderInfo(path)
		return err
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := setDirMode(path, mode, true); err != nil { // the umask may have narrowed it
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// setDirMode gives a folder its mode. ours is noted of it.
func setDirMode(path string, mode fs.FileMode, ours bool) error {
	folder, err := openFolder(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if ours {
		claim(folder, nil)
	}
	if err := folder.Chmod(mode); err != nil {
		return err
	}
	return folder.Sync()
}

// syncFolder makes durable what was added to or removed from a folder.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
