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

func (r *Root) EnsureDir(path string, mode fs.FileMode) error {
	path = filepath.Clean(r.path(path))
	return host.Explain("create directory", path, ensureDir(path, mode))
}

func ensureDir(path string, mode fs.FileMode) error {
	info, err := dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := ensureParent(filepath.Dir(path)); err != nil {
			return err
		}
		return makeDir(path, mode)
	}
	if err != nil {
		return err
	}
	if narrowed, wider := host.Narrow(info.Mode(), mode); wider {
		remember(path, info)
		return setDirMode(path, narrowed, false)
	}
	return nil
}

// ensureParent makes path and its missing parents.
func ensureParent(path string) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := ensureParent(filepath.Dir(path)); err != nil {
		return err
	}
	return makeDir(path, host.ParentMode)
}

// makeDir makes one directory, durably. Another process may be making it at the same time.
func makeDir(path string, mode fs.FileMode) error {
	err := unix.Mkdir(path, uint32(mode.Perm()))
	if err == unix.EEXIST {
		_, err := dirInfo(path)
		return err
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	if err := setDirMode(path, mode, true); err != nil { // the umask may have narrowed it
		return err
	}
	return syncDir(filepath.Dir(path))
}

// setDirMode sets a directory's mode. If ours is set, it notes that Slipway made the directory.
func setDirMode(path string, mode fs.FileMode, ours bool) error {
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if ours {
		claim(dir, nil)
	}
	if err := dir.Chmod(mode); err != nil {
		return err
	}
	return dir.Sync()
}

// syncDir makes additions to and removals from a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return stderrors.Join(dir.Sync(), dir.Close())
}
