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

// taken lists the entries that the removal of a directory takes away. If a mount
// point further down stays, these are the entries beside it. Directories end in a
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

// RemoveTree implements FileWriter. A plan lists the entries of the directory, but
// not everything below them, which can be a lot.
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
	done := host.Removal{Kept: outermost(mounts)}
	action := host.Action{Verb: host.RemoveTree, Path: path}
	action.Entries, err = taken(o.readDir, path, mounts, stays)
	if unlessForbidden(err) != nil {
		return done, host.Explain("remove", path, err)
	}
	for _, entry := range action.Entries {
		child := filepath.Join(path, entry)
		o.nodes[child] = &node{name: filepath.Base(child), removed: true}
	}
	if err != nil {
		action.Entries = []string{"(this user may not see what is in it)"}
	}
	stays = stays || len(mounts) > 0
	if !stays {
		o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	}
	if done.Changed = !stays || len(action.Entries) > 0; done.Changed {
		o.record(action)
	}
	return done, nil
}

// outermost drops the paths that are below others.
func outermost(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		return slices.ContainsFunc(paths, func(other string) bool { return strings.HasPrefix(p, other+"/") })
	})
}

// RemoveEmpty implements FileWriter.
func (o *overlay) RemoveEmpty(path string) (bool, error) {
	stays, refused := o.Stays(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if err != nil || !info.IsDir() || stays || refused != nil {
		return false, nil // nor is a directory removed that this user may not see
	}
	if entries, err := o.readDir(path); err != nil || len(entries) > 0 {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	o.record(host.Action{Verb: host.Remove, Path: path})
	return true, nil
}

// Unmount implements FileWriter.
func (o *overlay) Unmount(path string, _ []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unmounted[path] = true
	o.record(host.Action{Verb: host.Unmount, Path: path})
	return nil
}

// RemoveLeftover implements NetworkWriter.
func (o *overlay) RemoveLeftover(_ context.Context, l host.Leftover) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(host.Action{Verb: host.Remove, Name: l.String()})
	return nil
}
