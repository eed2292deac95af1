// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// openDir opens a directory to work in, by its descriptor alone: it doesn't matter if a link on the way changes later.
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

// openAt opens a directory's entry, unless it's a symlink.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir.Name(), name)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// list returns a directory's names, however much of it was read before.
func list(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return dir.Readdirnames(-1)
}

// sweep removes leftovers of earlier writes of name, or of all names if it's empty: temporary files, and directories of WriteTree.
func sweep(dir *os.File, name string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		of, found := host.LeftoverOf(n)
		if !found || name != "" && of != name {
			continue
		}
		err := unix.Unlinkat(int(dir.Fd()), n, 0)
		if errors.Is(err, unix.EISDIR) {
			if err = nil; name != "" {
				err = (&treeRemoval{}).remove(filepath.Join(dir.Name(), n))
			}
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "remove leftover", Path: n, Err: err}
		}
	}
	return nil
}

// maxLinks is how many symlinks are followed on the way to a directory: the kernel's limit.
const maxLinks = 40

var errOthersLink = errors.New("it is a symlink that a user other than root has made, so it is not followed: remove it, then run the same command again")

// openTrusted opens a directory by its absolute path. It follows a symlink on the way if it's root's or this user's; another
// user's may lead anywhere.
func openTrusted(path string) (*os.File, error) {
	at, err := os.OpenFile("/", unix.O_PATH, 0)
	links := 0
	for names := strings.Split(path, "/"); err == nil && len(names) > 0; {
		var target []string
		if at, target, err = follow(at, names[0]); target != nil {
			links++
		}
		if links > maxLinks {
			err = stderrors.Join(unix.ELOOP, at.Close())
		}
		names = append(target, names[1:]...)
	}
	if errors.Is(err, unix.ENOTDIR) {
		if _, infoErr := dirInfo(path); infoErr != nil {
			err = infoErr
		}
	}
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.Openat(int(at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// follow opens a directory's entry and closes the directory. If the entry is a symlink, it returns the directory, still open, and
// the parts of the link's target.
func follow(at *os.File, name string) (next *os.File, target []string, err error) {
	if name == "" {
		return at, nil, nil
	}
	next, err = openAt(at, name, unix.O_PATH)
	if err != nil {
		at.Close()
		return nil, nil, err
	}
	info, err := next.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSymlink {
		if !info.IsDir() {
			err = unix.ENOTDIR
		}
		at.Close()
	} else {
		if err == nil {
			target, err = trustedTarget(next, info)
		}
		next.Close()
		next = at
	}
	if err != nil {
		next.Close()
		return nil, nil, err
	}
	return next, target, nil
}

// trustedTarget splits a trusted symlink's target into names.
func trustedTarget(link *os.File, info fs.FileInfo) ([]string, error) {
	if !trustedLink(info) {
		return nil, errors.Wrap(errOthersLink, link.Name())
	}
	var text [unix.PathMax]byte
	n, err := unix.Readlinkat(int(link.Fd()), "", text[:])
	if err != nil {
		return nil, err
	}
	target := string(text[:n])
	names := strings.Split(target, "/")
	if filepath.IsAbs(target) {
		names[0] = "/"
	}
	return names, nil
}

// trustedLink reports whether root or this user made a symlink.
func trustedLink(info fs.FileInfo) bool {
	owner, known := host.OwnerIn(info)
	return known && (owner.UID == 0 || owner.UID == os.Geteuid())
}
