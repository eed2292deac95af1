// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	return r.write(path, data, mode, &owner)
}

func (r *Root) Give(path string, owner host.Owner, mode fs.FileMode) error {
	path = filepath.Clean(r.path(path))
	return host.Explain("change the owner of", path, give(path, owner, mode))
}

func give(path string, owner host.Owner, mode fs.FileMode) error {
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
	have, _ := host.OwnerIn(info)
	if have == owner && info.Mode() == mode {
		return nil
	}
	if err := host.OtherNames(path, info); have != owner && err != nil {
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
		return nil, nil, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}
