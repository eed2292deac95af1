// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/sha256"
	stderrors "errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// rememberedAs is an extended attribute, for root alone, of a directory older than Slipway's use: its original mode and owner.
const rememberedAs = "trusted.slipway.before"

// createdAttr is the extended attribute of a file or directory that Slipway created where nothing was. For a file it holds the
// content's hash. A user's copy in its place doesn't have it.
const createdAttr = "trusted.slipway.made"

// claim notes that Slipway created an open file or directory. Where the file system can't keep that, it counts as the user's.
func claim(file *os.File, note []byte) { _ = unix.Fsetxattr(int(file.Fd()), createdAttr, note, 0) }

func (r *Root) CreatedBySlipway(path string) bool { return made(r.path(path)) }

func made(path string) bool {
	_, err := unix.Lgetxattr(filepath.Clean(path), createdAttr, nil)
	return err == nil
}

func (r *Root) Unchanged(path string) bool {
	path = filepath.Clean(r.path(path))
	var note [sha256.Size]byte
	if n, err := unix.Lgetxattr(path, createdAttr, note[:]); err != nil || n != len(note) {
		return false
	}
	same, err := hashes(path, note) // programs are large
	return same && err == nil
}

// returnedAttr is the extended attribute of a directory that was given back, so the next removal doesn't take it for Slipway's.
const returnedAttr = "trusted.slipway.users"

// originalAttrs is a directory's original mode and owner.
type originalAttrs struct {
	mode     uint32 // permissions only
	uid, gid int
}

// remember notes a directory's mode and owner, unless that's already done. It goes on without the note if the file
// system can't keep it or this process may not write it.
func remember(path string, info fs.FileInfo) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text := fmt.Sprintf("%04o %d %d", info.Mode().Perm(), stat.Uid, stat.Gid)
		_ = unix.Setxattr(path, rememberedAs, []byte(text), unix.XATTR_CREATE)
	}
}

// remembered reads remember's note from an open directory.
func remembered(dir *os.File) (b originalAttrs, found bool) {
	var text [64]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), rememberedAs, text[:])
	if err != nil {
		return b, false
	}
	_, err = fmt.Sscanf(string(text[:n]), "%o %d %d", &b.mode, &b.uid, &b.gid)
	return b, err == nil
}

// isReturned reports whether an open directory was given back to the user.
func isReturned(dir *os.File) bool {
	_, err := unix.Fgetxattr(int(dir.Fd()), returnedAttr, nil)
	return err == nil
}

// giveBack restores an empty directory's mode and owner, and notes that it's the user's.
func (b originalAttrs) giveBack(dir *os.File) error {
	fd := int(dir.Fd())
	return stderrors.Join(
		unix.Fsetxattr(fd, returnedAttr, nil, 0), // first: the run may be interrupted
		unix.Fchown(fd, b.uid, b.gid),
		unix.Fchmod(fd, b.mode&0o777),
		unix.Fremovexattr(fd, rememberedAs),
		dir.Sync())
}

func onReadOnly(dir *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &s) == nil && s.Flags&unix.ST_RDONLY != 0
}

// SurvivesRemoval is also true for a file or device, which RemoveTree refuses.
func (r *Root) SurvivesRemoval(path string) (bool, error) {
	path = filepath.Clean(r.path(path))
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		if _, err = linked(path); errors.Is(err, fs.ErrPermission) {
			err = nil
		}
		return true, err
	}
	if err != nil || !info.IsDir() {
		return err == nil, nil
	}
	dir, err := openDir(path)
	if err != nil {
		return false, nil // the caller gets the same error when it opens it
	}
	defer dir.Close()
	if _, found := remembered(dir); found || isReturned(dir) || onReadOnly(dir) {
		return true, nil
	}
	mount, err := mountID(dir)
	if err != nil {
		return false, nil // as above
	}
	isMount, err := mountedOn(path, mount)
	return err == nil && isMount, nil
}
