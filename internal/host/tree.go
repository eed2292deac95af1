// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// deepest is how far a tree is followed before its branches are moved to
	// its top. Each level holds a descriptor open, and a Pod can make folders
	// deeper than there are descriptors.
	deepest = 100
	// attempts is how often a folder is emptied that another program fills.
	attempts = 3
	// mostFailures is how many failures an error lists.
	mostFailures = 3
	// fsckFolder is at the top of many file systems, and theirs.
	fsckFolder = "lost+found"
)

// Removal is what RemoveTree did.
type Removal struct {
	// Changed reports whether anything was removed.
	Changed bool
	// Kept are the mount points below the directory, without those within others.
	Kept []string
}

// RemoveTree implements FileWriter.
func (r *Real) RemoveTree(path string) (Removal, error) {
	path = filepath.Clean(r.path(path))
	t := &treeRemoval{}
	err := t.remove(path)
	for i, kept := range t.kept {
		t.kept[i] = r.hostPath(path + kept)
	}
	return Removal{Changed: t.changed, Kept: t.kept}, explain("remove", path, err)
}

// hostPath is the inverse of path.
func (r *Real) hostPath(p string) string { return strings.TrimPrefix(p, r.root) }

// treeRemoval is a folder that is being removed.
//
// Everything goes by descriptors of folders that were opened without following
// a link, and each is held against the mount that the tree began in. So it does
// not matter what another program renames, links or mounts meanwhile.
type treeRemoval struct {
	top     *os.File
	mount   string // of top
	changed bool
	moved   bool     // a branch was moved to the top since the top was listed
	kept    []string // without the path of top
	failed  []error
}

// remove empties the folder at path and deletes it, if it is no mount point
// and no link.
func (t *treeRemoval) remove(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	folder := path
	if info.Mode().Type() == fs.ModeSymlink {
		if folder, err = linked(path); err != nil {
			return err
		}
	}
	if err := t.begin(folder); err != nil {
		return err
	}
	defer t.top.Close()
	isMount, err := mountedOn(folder, t.mount)
	if err != nil {
		return err
	}
	before, found := remembered(t.top)
	stays := isMount || found || givenBack(t.top) || folder != path
	t.clear(stays)
	switch complete := len(t.failed) == 0 && len(t.kept) == 0; {
	case complete && found:
		t.failed = append(t.failed, before.giveBack(t.top))
	case complete && !stays:
		t.failed = append(t.failed, t.delete(path))
	}
	return errors.Join(t.failed[:min(len(t.failed), mostFailures)]...)
}

// linked is the folder that a link leads to. A link to a folder that holds the
// link itself, or to one at the top of the file system, leads to more than
// what is the node's: such a one is refused, and so is one that another user has
// made.
func linked(path string) (string, error) {
	if _, err := folderInfo(path); err != nil {
		return "", err
	}
	if link, err := os.Lstat(path); err != nil || !trustedLink(link) {
		return "", errors.Join(err, errOthersLink)
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
		return "", fmt.Errorf("it is a symlink to %s, which may hold more than what is this node's: empty that folder or remove the link, then run the same command again", target)
	}
	return target, nil
}

func (t *treeRemoval) begin(folder string) error {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(folder, flags, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		info, infoErr := os.Lstat(folder)
		if infoErr != nil {
			return infoErr
		}
		return &KindError{Path: folder, Want: "folder", Got: info.Mode()}
	}
	if err != nil {
		return &fs.PathError{Op: "open folder", Path: folder, Err: err}
	}
	t.top = os.NewFile(uintptr(fd), folder)
	if t.mount, err = mountID(t.top); err != nil {
		t.top.Close()
	}
	return err
}

// mountedOn tells whether folder, which is in a mount, is where it begins.
func mountedOn(folder, mount string) (bool, error) {
	parent, err := openFolder(filepath.Dir(folder))
	if err != nil {
		return false, err
	}
	defer parent.Close()
	above, err := mountID(parent)
	return above != mount, err
}

// mountID is the kernel's number of the mount that f is in, from proc(5),
// which tells bind mounts of one file system apart on every kernel.
func mountID(f *os.File) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("which mount %s is in cannot be seen without /proc: mount it (`mount -t proc proc /proc`, below --rootfs where that is given)", f.Name())
	}
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if id, found := bytes.CutPrefix(line, []byte("mnt_id:")); found {
			return string(bytes.TrimSpace(id)), nil
		}
	}
	return "", errors.New("the kernel does not tell which mount a folder is in (/proc/self/fdinfo)")
}

// clear empties the top until no branch is moved there any more.
func (t *treeRemoval) clear(stays bool) {
	for {
		t.moved = false
		t.empty(t.top, 0, stays)
		if !t.moved {
			return
		}
	}
}

// empty removes what a folder holds. In one that stays, and may be the top of a
// file system, it leaves what belongs to that.
func (t *treeRemoval) empty(folder *os.File, depth int, stays bool) {
	names, err := list(folder)
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	for _, name := range names {
		if !stays || name != fsckFolder {
			t.removeIn(folder, name, depth)
		}
	}
}

func list(folder *os.File) ([]string, error) {
	if _, err := folder.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return folder.Readdirnames(-1)
}

// removeIn removes one entry of a folder, with all that is in it.
func (t *treeRemoval) removeIn(folder *os.File, name string, depth int) {
	for range attempts {
		err := unix.Unlinkat(int(folder.Fd()), name, 0)
		if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) && isFolder(folder, name) {
			err = t.removeFolder(folder, name, depth)
		}
		switch {
		case err == nil:
			t.changed = true
			return
		case errors.Is(err, errLeft), errors.Is(err, unix.ENOENT):
			return
		case errors.Is(err, unix.EBUSY):
			t.kept = append(t.kept, strings.TrimPrefix(filepath.Join(folder.Name(), name), t.top.Name()))
			return
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // it has changed meanwhile
			continue
		}
		t.failed = append(t.failed, explain("remove", filepath.Join(folder.Name(), name), err))
		return
	}
	t.failed = append(t.failed, fmt.Errorf("remove %s: something still writes there; stop it, then run the same command again",
		filepath.Join(folder.Name(), name)))
}

// LeftoverOf tells of which file an entry of a folder is what a run left that was
// cut off while writing it.
func LeftoverOf(entry string) (name string, found bool) {
	i := strings.LastIndex(entry, tempSuffix)
	if i < 1 || entry[0] != '.' || len(entry) != i+len(tempSuffix)+tempRandomLen {
		return "", false
	}
	return entry[1:i], true
}

// taken lists what the removal of a folder takes away: what is at its top, and
// where a mount point stays further down, what is beside that. Folders have a
// slash.
func taken(readDir func(string) ([]fs.DirEntry, error), path string, mounts []string, stays bool) ([]string, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		switch {
		case slices.Contains(mounts, child), stays && e.Name() == fsckFolder:
		case len(below(mounts, child)) > 0:
			inner, _ := taken(readDir, child, mounts, false) // what cannot be seen is not listed
			for _, name := range inner {
				all = append(all, e.Name()+"/"+name)
			}
		case e.IsDir():
			all = append(all, e.Name()+"/")
		default:
			all = append(all, e.Name())
		}
	}
	return all, nil
}

// errLeft says that a folder stays because of what is in it, or is at another
// place now.
var errLeft = errors.New("left")

func isFolder(folder *os.File, name string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(int(folder.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// removeFolder removes a folder in another.
func (t *treeRemoval) removeFolder(parent *os.File, name string, depth int) error {
	if depth >= deepest {
		t.moved = true
		if err := unix.Renameat(int(parent.Fd()), name, int(t.top.Fd()), tempSuffix+rand.Text()); err != nil {
			return err
		}
		return errLeft
	}
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(parent.Fd()), name, flags, 0)
	if err != nil {
		return err
	}
	folder := os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name))
	defer folder.Close()
	mount, err := mountID(folder)
	if err != nil {
		return err
	}
	if mount != t.mount {
		return unix.EBUSY
	}
	left := len(t.kept) + len(t.failed)
	t.empty(folder, depth+1, false)
	err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) && len(t.kept)+len(t.failed) > left {
		return errLeft
	}
	return err
}

// delete removes the emptied folder itself.
func (t *treeRemoval) delete(path string) error {
	err := unix.Rmdir(path)
	if err == nil {
		t.changed = true
		err = syncFolder(filepath.Dir(path))
	}
	return err
}

// RemoveEmpty implements FileWriter.
func (r *Real) RemoveEmpty(path string) (bool, error) {
	if stays, err := r.Stays(path); stays || err != nil {
		return false, nil //nolint:nilerr // it is a symlink then
	}
	path = filepath.Clean(r.path(path))
	switch err := unix.Rmdir(path); err {
	case nil:
		return true, explain("remove", path, syncFolder(filepath.Dir(path)))
	case unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.ENOTDIR, unix.EBUSY:
		return false, nil
	default:
		return false, explain("remove", path, err)
	}
}
