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

// Narrow takes away from a directory's mode the permissions that aren't wanted, and reports whether there were any.
func Narrow(have, want fs.FileMode) (fs.FileMode, bool) {
	excess := have.Perm() &^ want.Perm()
	if excess == 0 || have&fs.ModeSticky != 0 {
		return have, false
	}
	return have &^ excess, true
}

// DirInfoBy is dirInfo by other means of looking.
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

// Vacant returns an error if path exists.
func Vacant(lstat func(string) (fs.FileInfo, error), path string) error {
	_, err := lstat(path)
	switch {
	case err == nil:
		return errors.WithMessage(unix.EEXIST, "move away what is there")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// Movable reports whether there is something to move. It returns an error if that
// would replace something, or if there is nothing at either path.
func Movable(lstat func(string) (fs.FileInfo, error), from, to string) (bool, error) {
	_, err := lstat(from)
	occupied := Vacant(lstat, to)
	if errors.Is(err, fs.ErrNotExist) && errors.Is(occupied, fs.ErrExist) {
		return false, nil
	}
	if err == nil {
		err = occupied
	}
	return err == nil, err
}

// OtherNames refuses to give away a file with more than one name: another user
// may have made this one.
func OtherNames(path string, info fs.FileInfo) error {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known || info.IsDir() || stat.Nlink < 2 {
		return nil
	}
	return errors.Errorf("%s has %d names (hard links), and all of them would be given to another user: "+
		"remove it, or put a copy in its place, then run the same command again", path, stat.Nlink)
}
