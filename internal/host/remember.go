// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// rememberedAs is the extended attribute of a folder that was there before
// this tool, with what it was like. Only root sees it.
const rememberedAs = "trusted.slipway.before"

// before is the mode and the owner of a folder.
type before struct {
	mode     uint32 // permissions only
	uid, gid int
}

// remember notes what a folder is like, unless that was done before. A file
// system that cannot hold the note does without, and so does a process that
// may not write it.
func remember(path string, info fs.FileInfo) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text := fmt.Sprintf("%04o %d %d", info.Mode().Perm(), stat.Uid, stat.Gid)
		_ = unix.Setxattr(path, rememberedAs, []byte(text), unix.XATTR_CREATE)
	}
}

// remembered reads the note of an open folder.
func remembered(folder *os.File) (b before, found bool) {
	var text [64]byte
	n, err := unix.Fgetxattr(int(folder.Fd()), rememberedAs, text[:])
	if err != nil {
		return b, false
	}
	_, err = fmt.Sscanf(string(text[:n]), "%o %d %d", &b.mode, &b.uid, &b.gid)
	return b, err == nil
}

// giveBack makes an empty folder what it was, and removes the note.
func (b before) giveBack(folder *os.File) error {
	fd := int(folder.Fd())
	return errors.Join(
		unix.Fchown(fd, b.uid, b.gid),
		unix.Fchmod(fd, b.mode&0o777),
		unix.Fremovexattr(fd, rememberedAs))
}

// Stays implements Cleanup.
func (r *Real) Stays(path string) bool {
	path = filepath.Clean(r.path(path))
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return err == nil
	}
	folder, err := openFolder(path)
	if err != nil {
		return false
	}
	defer folder.Close()
	if _, found := remembered(folder); found {
		return true
	}
	mount, err := mountID(folder)
	if err != nil {
		return false
	}
	isMount, err := mountedOn(path, mount)
	return err == nil && isMount
}
