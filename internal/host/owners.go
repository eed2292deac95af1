// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	stderrors "errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Owner is a user ID and a group ID.
type Owner struct{ UID, GID int }

// OwnerIn returns the owner in a file's description; known is false if it has none.
func OwnerIn(info fs.FileInfo) (whose Owner, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return Owner{}, false
	}
	return Owner{int(stat.Uid), int(stat.Gid)}, true
}

// otherNames refuses to give away a file with more than one name: another user
// may have made the one that was looked at.
func otherNames(path string, info fs.FileInfo) error {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known || info.IsDir() || stat.Nlink < 2 {
		return nil
	}
	return errors.Errorf("%s has %d names (hard links), and all of them would be given to another user: "+
		"remove it, or put a copy in its place, then run the same command again", path, stat.Nlink)
}

// WriteOwned implements OwnerWriter.
func (r *Root) WriteOwned(path string, data []byte, mode fs.FileMode, owner Owner) (bool, error) {
	return r.write(path, data, mode, &owner)
}

// Give implements OwnerWriter.
func (r *Root) Give(path string, owner Owner, mode fs.FileMode) error {
	path = filepath.Clean(r.path(path))
	return explain("change the owner of", path, give(path, owner, mode))
}

func give(path string, owner Owner, mode fs.FileMode) error {
	dir, err := openTrusted(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, info, err := openRegular(dir, path)
	if err != nil {
		return err
	}
	defer f.Close()
	have, _ := OwnerIn(info)
	if have == owner && info.Mode() == mode {
		return nil
	}
	if err := otherNames(path, info); have != owner && err != nil {
		return err
	}
	// Narrow first: the new group may not have had the old mode, nor the old
	// group the new one.
	if err := stderrors.Join(f.Chmod(info.Mode().Perm()&mode), f.Chown(owner.UID, owner.GID), f.Chmod(mode)); err != nil {
		return err
	}
	return f.Sync()
}

// openRegular opens the file at path, which is in dir.
func openRegular(dir *os.File, path string) (*os.File, fs.FileInfo, error) {
	// NONBLOCK, because it may be a FIFO.
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(path), flags, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a symlink, a socket
		info, infoErr := os.Lstat(path)
		if infoErr != nil {
			return nil, nil, infoErr
		}
		return nil, nil, &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
