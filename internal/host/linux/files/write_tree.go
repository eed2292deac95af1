// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) WriteTree(path string, fill func(dir string) error) error {
	return r.in("create directory", path, func(dir *os.File, name string) error {
		if err := host.CheckNotExists(os.Lstat, filepath.Join(dir.Name(), name)); err != nil {
			return err
		}
		temp, fd := host.TempName(name), int(dir.Fd())
		if err := unix.Mkdirat(fd, temp, 0o700); err != nil {
			return err
		}
		err := fillTree(dir, temp, fill)
		if err == nil {
			err = unix.Renameat(fd, temp, fd, name)
		}
		if err != nil {
			return stderrors.Join(err, (&treeRemoval{}).remove(filepath.Join(dir.Name(), temp)))
		}
		return dir.Sync()
	})
}

// fillTree lets fill work in a new directory, and waits until everything is on disk. fill gets a path through the descriptor,
// because a user who owns dir could replace the new directory with a link.
func fillTree(dir *os.File, temp string, fill func(dir string) error) error {
	tree, err := openAt(dir, temp, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := tree.Chmod(0o700); err != nil { // the umask may have narrowed it
		return err
	}
	claim(tree, nil)
	if err := fill(fmt.Sprintf("/proc/self/fd/%d", tree.Fd())); err != nil {
		return err
	}
	return syncTree(tree)
}

// syncTree makes everything in a directory durable.
func syncTree(tree *os.File) error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d/.", tree.Fd()))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		return stderrors.Join(f.Sync(), f.Close())
	})
}

func (r *Root) Rename(from, to string) (bool, error) {
	from, to = filepath.Clean(r.path(from)), filepath.Clean(r.path(to))
	moves, err := host.Movable(os.Lstat, from, to)
	if moves {
		err = renameDurably(from, to)
	}
	return moves && err == nil, host.Explain("rename "+from+" to", to, err)
}

func renameDurably(from, to string) error {
	switch err := unix.Rename(from, to); err {
	case nil:
	case unix.EXDEV:
		return errors.WithMessage(err, "they are on different file systems")
	case unix.EBUSY:
		return errors.WithMessage(err, "one of them is a mount point")
	default:
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		if err := syncDir(filepath.Dir(from)); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(to))
}
