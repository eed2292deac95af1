// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// clear empties the top until no more branches are moved there.
func (t *treeRemoval) clear(stays bool) {
	for {
		t.moved = false
		t.empty(t.top, 0, stays)
		if !t.moved {
			return
		}
	}
}

// empty removes a directory's entries. A directory that stays may be the top of a file system: then lost+found stays too.
func (t *treeRemoval) empty(dir *os.File, depth int, stays bool) {
	names, err := list(dir)
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	for _, name := range names {
		if !stays || name != host.LostAndFound {
			t.removeIn(dir, name, depth)
		}
	}
}

// list returns a directory's names, however much of it was read before.
func list(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return dir.Readdirnames(-1)
}

// removeIn removes one entry of a directory, with everything in it.
func (t *treeRemoval) removeIn(dir *os.File, name string, depth int) {
	for range attempts {
		err := unix.Unlinkat(int(dir.Fd()), name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) && isDir(dir, name) {
			err = t.removeDir(dir, name, depth)
		}
		switch {
		case err == nil:
			t.changed = true
			return
		case errors.Is(err, errLeft), errors.Is(err, unix.ENOENT):
			return
		case errors.Is(err, unix.EBUSY):
			t.kept = append(t.kept, strings.TrimPrefix(filepath.Join(dir.Name(), name), t.top.Name()))
			return
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // another program changed it
			continue
		}
		t.failed = append(t.failed, host.Explain("remove", filepath.Join(dir.Name(), name), err))
		return
	}
	t.failed = append(t.failed, errors.Errorf("remove %s: another program still writes there; stop it, then run the same command again",
		filepath.Join(dir.Name(), name)))
}

// errLeft says that a directory stays because of its content, or was moved.
var errLeft = errors.New("left")

func isDir(dir *os.File, name string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (t *treeRemoval) removeDir(parent *os.File, name string, depth int) error {
	if depth >= deepest {
		t.moved = true
		if err := unix.Renameat(int(parent.Fd()), name, int(t.top.Fd()), host.TempName("branch")); err != nil {
			return err
		}
		return errLeft
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name))
	defer dir.Close()
	mount, err := mountID(dir)
	if err != nil {
		return err
	}
	if mount != t.mount {
		return unix.EBUSY
	}
	left := len(t.kept) + len(t.failed)
	t.empty(dir, depth+1, false)
	err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) && len(t.kept)+len(t.failed) > left {
		return errLeft
	}
	return err
}
