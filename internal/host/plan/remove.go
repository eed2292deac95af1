// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

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
	stays, refused := o.Stays(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	_, err = o.dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return host.Removal{}, nil
	}
	if err = cmp.Or(unlessForbidden(err), refused); err != nil {
		return host.Removal{}, host.Explain("remove", path, err)
	}
	entries, err := taken(o.readDir, path, mounts, stays)
	if unlessForbidden(err) != nil {
		return host.Removal{}, host.Explain("remove", path, err)
	}
	for _, entry := range entries {
		child := filepath.Join(path, entry)
		o.nodes[child] = &node{name: filepath.Base(child), removed: true}
	}
	stays = stays || len(mounts) > 0
	if !stays {
		o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	}
	return host.Removal{Changed: !stays || len(entries) > 0 || err != nil, Kept: outermost(mounts)}, nil
}

// outermost drops paths below others.
func outermost(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		return slices.ContainsFunc(paths, func(other string) bool { return strings.HasPrefix(p, other+"/") })
	})
}

func (o *overlay) RemoveEmpty(path string) (bool, error) {
	stays, refused := o.Stays(path)
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
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
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
