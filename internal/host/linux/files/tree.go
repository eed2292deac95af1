// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// deepest is how many levels of a tree are opened before a branch is moved to the top instead. Each level needs an open
	// descriptor, and a Pod can nest directories deeper than there are descriptors.
	deepest = 100
	// attempts is how often to empty a directory that another program refills.
	attempts = 3
	// maxFailures is how many failures an error lists.
	maxFailures = 3
)

func (r *Root) RemoveTree(path string) (host.Removal, error) {
	path = filepath.Clean(r.path(path))
	t := &treeRemoval{}
	err := t.remove(path)
	for i, kept := range t.kept {
		t.kept[i] = r.hostPath(path + kept)
	}
	return host.Removal{Changed: t.changed, Kept: t.kept}, host.Explain("remove", path, err)
}

// treeRemoval is a directory being removed.
//
// It works on descriptors of directories opened without following a link, and checks that each is in the mount where the tree
// began. So it doesn't matter if another program renames, links or mounts directories meanwhile.
type treeRemoval struct {
	top     *os.File
	mount   string // of top
	changed bool
	moved   bool     // a branch was moved to the top after the top was listed
	kept    []string // relative to top
	failed  []error
}

// remove empties the directory at path, and deletes it unless it's a mount point, a link, or was there before Slipway.
func (t *treeRemoval) remove(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := path
	if info.Mode().Type() == fs.ModeSymlink {
		if dir, err = linked(path); err != nil {
			return err
		}
	}
	if err := t.begin(dir); err != nil {
		return err
	}
	defer t.top.Close()
	isMount, err := mountedOn(dir, t.mount)
	if err != nil {
		return err
	}
	before, found := remembered(t.top)
	stays := isMount || found || isReturned(t.top) || dir != path
	t.clear(stays)
	switch complete := len(t.failed) == 0 && len(t.kept) == 0; {
	case complete && found:
		t.failed = append(t.failed, before.giveBack(t.top))
	case complete && !stays:
		t.failed = append(t.failed, t.delete(path))
	case t.changed:
		t.failed = append(t.failed, t.top.Sync())
	}
	return stderrors.Join(t.failed[:min(len(t.failed), maxFailures)]...)
}

// linked returns the directory a link leads to. It refuses another user's link, and a link to a directory that contains the link
// itself or is at the top of the file system: these hold more than the node's files.
func linked(path string) (string, error) {
	if _, err := dirInfo(path); err != nil {
		return "", err
	}
	if link, err := os.Lstat(path); err != nil || !trustedLink(link) {
		return "", stderrors.Join(err, errOthersLink)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if filepath.Dir(target) == "/" || target == "/" || strings.HasPrefix(parent+"/", target+"/") {
		return "", errors.Errorf("it is a symlink to %s, which may hold more than this node's files: empty that directory or remove the link, then run the same command again", target)
	}
	return target, nil
}

// begin opens the directory to remove, and notes its mount.
func (t *treeRemoval) begin(dir string) error {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(dir, flags, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		info, infoErr := os.Lstat(dir)
		if infoErr != nil {
			return infoErr
		}
		return &host.KindError{Path: dir, Want: "directory", Got: info.Mode()}
	}
	if err != nil {
		return &fs.PathError{Op: "open directory", Path: dir, Err: err}
	}
	t.top = os.NewFile(uintptr(fd), dir)
	if t.mount, err = mountID(t.top); err != nil {
		t.top.Close()
	}
	return err
}

// delete removes the directory itself, now that it's empty.
func (t *treeRemoval) delete(path string) error {
	err := unix.Rmdir(path)
	if err == nil {
		t.changed = true
		err = syncDir(filepath.Dir(path))
	}
	return err
}

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
	dir, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
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

func (r *Root) RemoveEmpty(path string) (bool, error) {
	if stays, err := r.SurvivesRemoval(path); stays || err != nil {
		return false, nil //nolint:nilerr // it is a symlink then
	}
	path = filepath.Clean(r.path(path))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // for rmdir(2), a missing name on a read-only file system is EROFS
		return false, nil
	}
	switch err := unix.Rmdir(path); err {
	case nil:
		return true, host.Explain("remove", path, syncDir(filepath.Dir(path)))
	case unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.ENOTDIR, unix.EBUSY:
		return false, nil
	default:
		return false, host.Explain("remove", path, err)
	}
}
