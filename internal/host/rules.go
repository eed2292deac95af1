// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// ParentMode is the mode of missing parent directories.
const ParentMode = 0o755

// Narrow removes unwanted permissions from a directory's mode, and reports whether it did. A sticky directory keeps its mode.
func Narrow(have, want fs.FileMode) (fs.FileMode, bool) {
	excess := have.Perm() &^ want.Perm()
	if excess == 0 || have&fs.ModeSticky != 0 {
		return have, false
	}
	return have &^ excess, true
}

// DirInfoBy describes the directory at path, following a symlink. Anything else, including a dangling link, is a *KindError.
func DirInfoBy(lstat, stat func(string) (fs.FileInfo, error), path string) (fs.FileInfo, error) {
	own, err := lstat(path)
	if err != nil {
		return nil, err
	}
	info, err := stat(path)
	if own.Mode().Type() == fs.ModeSymlink && errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, &KindError{Path: path, Want: "directory", Got: own.Mode()}
	}
	return info, err
}

// CheckNotExists returns an error if path exists.
func CheckNotExists(lstat func(string) (fs.FileInfo, error), path string) error {
	_, err := lstat(path)
	switch {
	case err == nil:
		return errors.WithMessage(unix.EEXIST, "move away the existing target")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// Movable reports whether there's anything to move: false if only to exists. Both paths or neither is an error.
func Movable(lstat func(string) (fs.FileInfo, error), from, to string) (bool, error) {
	_, err := lstat(from)
	occupied := CheckNotExists(lstat, to)
	if errors.Is(err, fs.ErrNotExist) && errors.Is(occupied, fs.ErrExist) {
		return false, nil
	}
	if err == nil {
		err = occupied
	}
	return err == nil, err
}

// CheckSingleLink refuses to give away a file with several names: another user may have made this name.
func CheckSingleLink(path string, info fs.FileInfo) error {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known || info.IsDir() || stat.Nlink < 2 {
		return nil
	}
	return errors.Errorf("%s has %d names (hard links), and all of them would be given to another user: "+
		"remove it, or put a copy in its place, then run the same command again", path, stat.Nlink)
}
