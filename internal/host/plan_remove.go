// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// RemoveTree implements FileWriter. A plan lists the entries of the directory, but
// not what is below them, which can be a lot.
func (o *overlay) RemoveTree(path string) (Removal, error) {
	mounts, err := o.Mounts(path)
	if err != nil {
		return Removal{}, explain("remove", path, err)
	}
	stays, refused := o.Stays(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	_, err = o.dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Removal{}, nil
	}
	if err = cmp.Or(unlessForbidden(err), refused); err != nil {
		return Removal{}, explain("remove", path, err)
	}
	done := Removal{Kept: outermost(mounts)}
	action := Action{Verb: RemoveTree, Path: path}
	action.Entries, err = taken(o.readDir, path, mounts, stays)
	if unlessForbidden(err) != nil {
		return done, explain("remove", path, err)
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
		return false, nil // what this user may not see is not removed either
	}
	if entries, err := o.readDir(path); err != nil || len(entries) > 0 {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	o.record(Action{Verb: Remove, Path: path})
	return true, nil
}

// Unmount implements FileWriter.
func (o *overlay) Unmount(path string, _ []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unmounted[path] = true
	o.record(Action{Verb: Unmount, Path: path})
	return nil
}

// RemoveLeftover implements NetworkWriter.
func (o *overlay) RemoveLeftover(_ context.Context, l Leftover) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(Action{Verb: Remove, Name: l.String()})
	return nil
}
