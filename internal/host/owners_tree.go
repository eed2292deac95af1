// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// GiveTree implements OwnerWriter.
func (r *Real) GiveTree(path string, owner Owner) ([]string, error) {
	path = filepath.Clean(r.path(path))
	g := &treeGift{owner: owner}
	err := g.give(path)
	for i, kept := range g.kept {
		g.kept[i] = r.hostPath(kept)
	}
	return g.kept, explain("change the owner of", path, err)
}

// treeGift is a directory that is being given to another user. As in a removal,
// everything goes by descriptors, and nothing leaves the mount it began in.
type treeGift struct {
	owner Owner
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
	if have, _ := OwnerIn(info); have == g.owner {
		return nil
	}
	if g.mount, err = mountID(top); err != nil {
		return err
	}
	if err := g.entries(top, 0); err != nil {
		return err
	}
	// Last, so that a run that is cut off is continued by the next one.
	return errors.Join(top.Chown(g.owner.UID, g.owner.GID), top.Sync())
}

// entries gives away what a directory holds. Another program may remove what
// was just listed.
func (g *treeGift) entries(dir *os.File, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s is deeper than %d directories: remove what does not belong there", dir.Name(), deepest)
	}
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if depth == 0 && name == fsckFolder {
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
	f, err := openStep(int(dir.Fd()), name)
	if err != nil {
		return explain("open", path, err)
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
		if err := g.inside(f, path, depth); err != nil {
			return err
		}
	}
	if have, _ := OwnerIn(info); have == g.owner {
		return nil
	}
	if err := otherNames(path, info); err != nil {
		return err
	}
	return unix.Fchownat(int(f.Fd()), "", g.owner.UID, g.owner.GID, unix.AT_EMPTY_PATH)
}

func (g *treeGift) inside(at *os.File, path string, depth int) error {
	dir, err := openHere(at, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return g.entries(dir, depth+1)
}
