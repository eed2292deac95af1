// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/sha256"
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

// madeAs is the extended attribute of a file or folder that this tool has made
// where nothing was: of a file with the hash of what was written. A copy that
// the user puts there in its place has none.
const madeAs = "trusted.slipway.made"

// claim notes that this tool has made what is open, with a note of its own. As
// with remember, it may be that none can be written; then all is taken for the
// user's.
func claim(file *os.File, note []byte) { _ = unix.Fsetxattr(int(file.Fd()), madeAs, note, 0) }

// Made implements PathReader.
func (r *Real) Made(path string) bool { return made(r.path(path)) }

func made(path string) bool {
	_, err := unix.Lgetxattr(filepath.Clean(path), madeAs, nil)
	return err == nil
}

// Unchanged implements PathReader.
func (r *Real) Unchanged(path string) bool {
	path = filepath.Clean(r.path(path))
	data, err := os.ReadFile(path)
	var note [sha256.Size]byte
	n, noteErr := unix.Lgetxattr(path, madeAs, note[:])
	return err == nil && noteErr == nil && n == len(note) && note == sha256.Sum256(data)
}

// usersAs is the extended attribute of a folder that was given back: another
// removal does not take it for a folder of this tool's.
const usersAs = "trusted.slipway.users"

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

// givenBack tells whether an open folder is the user's since it was given back.
func givenBack(folder *os.File) bool {
	_, err := unix.Fgetxattr(int(folder.Fd()), usersAs, nil)
	return err == nil
}

// giveBack makes an empty folder what it was, and notes that it is the user's.
func (b before) giveBack(folder *os.File) error {
	fd := int(folder.Fd())
	return errors.Join(
		unix.Fsetxattr(fd, usersAs, nil, 0), // first: the run may be cut off
		unix.Fchown(fd, b.uid, b.gid),
		unix.Fchmod(fd, b.mode&0o777),
		unix.Fremovexattr(fd, rememberedAs))
}

// Stays implements PathReader.
func (r *Real) Stays(path string) (bool, error) {
	path = filepath.Clean(r.path(path))
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		_, err = linked(path)
		return true, unlessForbidden(err)
	}
	if err != nil || !info.IsDir() {
		return err == nil, nil
	}
	folder, err := openFolder(path)
	if err != nil {
		return false, nil // who opens it next says it
	}
	defer folder.Close()
	if _, found := remembered(folder); found || givenBack(folder) {
		return true, nil
	}
	mount, err := mountID(folder)
	if err != nil {
		return false, nil // as above
	}
	isMount, err := mountedOn(path, mount)
	return err == nil && isMount, nil
}
