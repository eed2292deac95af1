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

func (r *Root) SetOwner(path string, owner host.Owner, mode fs.FileMode) error {
	path = filepath.Clean(r.path(path))
	return host.Explain("change the owner of", path, give(path, owner, mode))
}

func give(path string, owner host.Owner, mode fs.FileMode) error {
	dir, err := openTrusted(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, info, err := openRegular(dir, path)
	if err != nil {
		return err
	}
	defer f.Close()
	have, _ := host.OwnerIn(info)
	if have == owner && info.Mode() == mode {
		return nil
	}
	if err := host.CheckSingleLink(path, info); have != owner && err != nil {
		return err
	}
	// Narrow first: neither the new nor the old group may have had the other's mode.
	if err := stderrors.Join(f.Chmod(info.Mode().Perm()&mode), f.Chown(owner.UID, owner.GID), f.Chmod(mode)); err != nil {
		return err
	}
	return f.Sync()
}

// openRegular opens the file at path, which is in dir.
func openRegular(dir *os.File, path string) (*os.File, fs.FileInfo, error) {
	f, err := openAt(dir, filepath.Base(path), unix.O_RDONLY|unix.O_NONBLOCK) // it may be a FIFO,
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {             // a symlink, or a socket
		info, infoErr := os.Lstat(path)
		if infoErr != nil {
			return nil, nil, infoErr
		}
		return nil, nil, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (r *Root) SetTreeOwner(path string, owner host.Owner) ([]string, error) {
	path = filepath.Clean(r.path(path))
	g := &treeGift{owner: owner}
	err := g.give(path)
	for i, kept := range g.kept {
		g.kept[i] = r.hostPath(kept)
	}
	return g.kept, host.Explain("change the owner of", path, err)
}

// treeGift is a directory being given to another user. Like a removal, it works on descriptors and stays in its first mount.
type treeGift struct {
	owner host.Owner
	mount string // of the top
	kept  []string
}

func (g *treeGift) give(path string) error {
	top, err := openTrusted(path)
	if err != nil {
		return err
	}
	defer top.Close()
	info, err := top.Stat()
	if err != nil {
		return err
	}
	if have, _ := host.OwnerIn(info); have == g.owner {
		return nil
	}
	if g.mount, err = mountID(top); err != nil {
		return err
	}
	if err := g.entries(top, 0); err != nil {
		return err
	}
	// Last, and with the others on disk, so that the next run can continue, even after a power cut.
	if err := unix.Syncfs(int(top.Fd())); err != nil {
		return err
	}
	return stderrors.Join(top.Chown(g.owner.UID, g.owner.GID), top.Sync())
}

// entries gives away a directory's entries. Another program may remove an entry after the listing.
func (g *treeGift) entries(dir *os.File, depth int) error {
	if depth > deepest {
		return errors.Errorf("%s is nested deeper than %d directories: remove anything that does not belong there", dir.Name(), deepest)
	}
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if depth == 0 && name == host.LostAndFound {
			continue
		}
		if err := g.entry(dir, name, depth); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (g *treeGift) entry(dir *os.File, name string, depth int) error {
	path := filepath.Join(dir.Name(), name)
	f, err := openAt(dir, name, unix.O_PATH)
	if err != nil {
		return host.Explain("open", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mount, err := mountID(f)
	if err != nil {
		return err
	}
	if mount != g.mount || !info.IsDir() && !info.Mode().IsRegular() {
		g.kept = append(g.kept, path)
		return nil
	}
	if info.IsDir() {
		inside, err := openAt(f, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer inside.Close()
		if err := g.entries(inside, depth+1); err != nil {
			return err
		}
	}
	if have, _ := host.OwnerIn(info); have == g.owner {
		return nil
	}
	if err := host.CheckSingleLink(path, info); err != nil {
		return err
	}
	return unix.Fchownat(int(f.Fd()), "", g.owner.UID, g.owner.GID, unix.AT_EMPTY_PATH)
}
