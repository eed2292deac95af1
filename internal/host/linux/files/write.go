// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"crypto/sha256"
	stderrors "errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) WriteSecret(path string, data []byte) (bool, error) {
	return r.WriteFile(path, data, 0o600)
}

// WriteFile also removes the leftovers of a run that was killed while it wrote the same file.
func (r *Root) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return r.write(path, data, mode, nil)
}

// write is WriteFile, or WriteOwned if owner isn't nil.
func (r *Root) write(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	path = r.path(path)
	guard := r.guard(path)
	guard.Lock()
	defer guard.Unlock()
	changed, err := writeFile(path, data, mode, owner)
	return changed, host.Explain("write", path, err)
}

func writeFile(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	parent, name := filepath.Split(filepath.Clean(path))
	dir, err := openDir(parent)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	if err := sweep(dir, name); err != nil {
		return false, err
	}
	same, err := holds(dir, name, data, mode, owner)
	if same || err != nil {
		return false, err
	}
	return replace(dir, name, func(f *os.File, ours bool) error {
		if ours {
			sum := sha256.Sum256(data)
			claim(f, sum[:])
		}
		return fill(f, data, mode, owner)
	})
}

// replace puts a file that write has filled and closed in the place of name. ours is true if Slipway made the old file, or there
// was none.
func replace(dir *os.File, name string, write func(f *os.File, ours bool) error) (changed bool, err error) {
	path := filepath.Join(dir.Name(), name)
	_, err = os.Lstat(path)
	ours := errors.Is(err, fs.ErrNotExist) || made(path)
	temp, err := writeTemp(dir, name, func(f *os.File) error { return write(f, ours) })
	if err != nil {
		return false, err
	}
	fd := int(dir.Fd())
	if err := unix.Renameat(fd, temp, fd, name); err != nil {
		return false, stderrors.Join(err, unix.Unlinkat(fd, temp, 0))
	}
	return true, dir.Sync()
}

// openDir opens a directory to work in. From then on only the descriptor is used, so it doesn't matter if a link on the way
// changes.
func openDir(path string) (*os.File, error) {
	path = filepath.Clean(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	var kind *host.KindError
	if _, infoErr := dirInfo(path); errors.As(infoErr, &kind) {
		return nil, kind
	}
	return nil, &fs.PathError{Op: "open directory", Path: path, Err: err}
}

// dirInfo is host.DirInfoBy for this process's file system.
func dirInfo(path string) (fs.FileInfo, error) { return host.DirInfoBy(os.Lstat, os.Stat, path) }

// sweep removes the leftovers of earlier writes of name: temporary files, and directories of WriteTree.
func sweep(dir *os.File, name string) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if of, found := host.LeftoverOf(n); !found || of != name {
			continue
		}
		err := unix.Unlinkat(int(dir.Fd()), n, 0)
		if errors.Is(err, unix.EISDIR) {
			err = (&treeRemoval{}).remove(filepath.Join(dir.Name(), n))
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "remove leftover", Path: n, Err: err}
		}
	}
	return nil
}

// holds reports whether name is a regular file with these bytes, this mode and, unless it's nil, this owner. Anything but a
// regular file is an error.
func holds(dir *os.File, name string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	path := filepath.Join(dir.Name(), name)
	info, err := replaceable(path)
	if info == nil || err != nil {
		return false, err
	}
	have, _ := host.OwnerIn(info)
	if info.Mode() != mode || info.Size() != int64(len(data)) || owner != nil && have != *owner {
		return false, nil
	}
	// NONBLOCK, because the file may have become a FIFO by now.
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	got := make([]byte, len(data))
	if _, err := f.ReadAt(got, 0); err != nil && len(data) > 0 {
		return false, err
	}
	return bytes.Equal(got, data), nil
}

// replaceable describes the regular file at path; nil if there's nothing. Anything else is a *KindError.
func replaceable(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	return info, nil
}

// writeTemp creates a file next to name, complete and on disk, and returns its name. A failure leaves nothing behind.
func writeTemp(dir *os.File, name string, fill func(*os.File) error) (string, error) {
	temp := host.TempName(name)
	parent := int(dir.Fd())
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(parent, temp, flags, 0o600)
	if err != nil {
		return "", err
	}
	if err := fill(os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name))); err != nil {
		return "", stderrors.Join(err, unix.Unlinkat(parent, temp, 0))
	}
	return temp, nil
}

// fill sets the owner and mode of f before it writes the content.
func fill(f *os.File, data []byte, mode fs.FileMode, owner *host.Owner) error {
	var err error
	if owner != nil {
		err = f.Chown(owner.UID, owner.GID)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return stderrors.Join(err, f.Close())
}

func (r *Root) Remove(path string) error {
	path = r.path(path)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return host.Explain("remove", path, err)
}
