// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (o *overlay) Remove(path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if err == nil && info.IsDir() {
		var entries []fs.DirEntry
		if entries, err = o.readDir(path); err == nil && len(entries) > 0 {
			err = unix.ENOTEMPTY
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if host.IgnoreForbidden(err) != nil {
		return host.Explain("remove", path, err)
	}
	o.drop(path)
	return nil
}

// taken lists the entries that removing a directory takes away. If a mount point further down stays, it lists the entries beside
// it. Directories end in a slash.
func taken(readDir func(string) ([]fs.DirEntry, error), path string, mounts []string, stays bool) ([]string, error) {
	entries, err := readDir(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		switch {
		case slices.Contains(mounts, child), stays && e.Name() == host.LostAndFound:
		case slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(m, child+"/") }):
			inner, _ := taken(readDir, child, mounts, false) // without entries that this user may not see
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

// RemoveTree lists the directory's entries, but not everything below them, which can be a lot.
func (o *overlay) RemoveTree(path string) (host.Removal, error) {
	mounts, err := o.Mounts(path)
	if err != nil {
		return host.Removal{}, host.Explain("remove", path, err)
	}
	stays, refused := o.SurvivesRemoval(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	_, err = o.dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Removal{}, nil
	}
	if err = cmp.Or(host.IgnoreForbidden(err), refused); err != nil {
		return host.Removal{}, host.Explain("remove", path, err)
	}
	entries, err := taken(o.readDir, path, mounts, stays)
	if host.IgnoreForbidden(err) != nil {
		return host.Removal{}, host.Explain("remove", path, err)
	}
	for _, entry := range entries {
		entry = filepath.Join(path, entry)
		if from := o.origin(entry); !slices.Contains(o.freed, from) {
			o.freed = append(o.freed, from)
		}
		o.drop(entry)
	}
	stays = stays || len(mounts) > 0
	if !stays {
		o.drop(path)
	}
	return host.Removal{Changed: !stays || len(entries) > 0 || err != nil, Kept: outermost(mounts)}, nil
}

// Space counts the space that RemoveTree has freed so far: a run may do that before it checks. It doesn't count files that the plan writes.
func (o *overlay) Space(path string) (host.Space, error) {
	s, err := o.base.Space(path)
	if err != nil {
		return s, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, tree := range o.freed {
		if on, err := o.base.Space(filepath.Dir(tree)); err == nil && on.Device == s.Device {
			s.Free += usedBy(o.base, tree)
		}
	}
	return s, nil
}

// usedBy returns the space of the files below path that this user may see.
func usedBy(h host.FileReader, path string) (bytes uint64) {
	info, err := h.Lstat(path)
	if err != nil {
		return 0
	}
	if stat, known := info.Sys().(*syscall.Stat_t); known {
		bytes = uint64(stat.Blocks) * 512 // stat(2) counts in these, whatever the file system's blocks are
	}
	if info.IsDir() {
		entries, _ := h.ReadDir(path)
		for _, e := range entries {
			bytes += usedBy(h, filepath.Join(path, e.Name()))
		}
	}
	return bytes
}

// outermost drops paths below others.
func outermost(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		return slices.ContainsFunc(paths, func(other string) bool { return strings.HasPrefix(p, other+"/") })
	})
}

func (o *overlay) RemoveEmpty(path string) (bool, error) {
	stays, refused := o.SurvivesRemoval(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if err != nil || !info.IsDir() || stays || refused != nil {
		return false, nil // a directory this user may not see stays too
	}
	if entries, err := o.readDir(path); err != nil || len(entries) > 0 {
		return false, nil
	}
	o.drop(path)
	return true, nil
}

func (o *overlay) Unmount(path string, _ []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unmounted[path] = true
	return nil
}

// RemoveLeftover does nothing: a plan doesn't look for leftovers again.
func (o *overlay) RemoveLeftover(context.Context, host.Leftover) error { return nil }

func (o *overlay) Rename(from, to string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	moves, err := host.Movable(o.lstat, from, to)
	if errors.Is(err, fs.ErrPermission) { // it may exist or not
		moves, err = true, nil
	}
	if err == nil && moves {
		err = o.checkDir(filepath.Dir(to))
	}
	if err != nil || !moves {
		return false, host.Explain("rename "+from+" to", to, err)
	}
	o.move(from, to)
	return true, nil
}

// move moves the plan's knowledge of from, and notes where base has the rest.
func (o *overlay) move(from, to string) {
	top := &node{mode: fs.ModeDir | 0o700, unknown: true}
	if info, err := o.lstat(from); err == nil {
		top = &node{mode: info.Mode(), from: o.origin(from)}
		if whose, known := o.ownerOf(from, info); known {
			o.owners[from] = whose
		}
	}
	if n := o.nodes[from]; n != nil {
		top = n
	}
	top.name = filepath.Base(to)
	o.nodes[from] = top
	rebase(o.nodes, from, to)
	rebase(o.owners, from, to)
	o.drop(from)
}

// rebase moves the entries of a path and everything below it to another path.
func rebase[V any](byPath map[string]V, from, to string) {
	for path, v := range maps.Clone(byPath) {
		if path == from || strings.HasPrefix(path, from+"/") {
			delete(byPath, path)
			byPath[to+strings.TrimPrefix(path, from)] = v
		}
	}
}

// origin returns base's path for a path that the plan may have moved.
func (o *overlay) origin(path string) string {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if n := o.nodes[at]; n != nil && n.from != "" {
			return filepath.Join(n.from, strings.TrimPrefix(path, at))
		}
	}
	return path
}
