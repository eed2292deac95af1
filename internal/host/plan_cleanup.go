// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
)

// The verbs of a plan to clean up.
const (
	RemoveTree Verb = "remove folder"
	Unmount    Verb = "unmount"
	RemovePod  Verb = "remove Pod"
)

// RemoveTree implements Cleanup. A plan lists what is in the folder, but not
// what is in the folders in it, which can be a lot.
func (o *overlay) RemoveTree(path string) (Removal, error) {
	kept, err := o.Mounts(path)
	stays := o.Stays(path)
	if err != nil {
		return Removal{}, explain("remove", path, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	_, err = o.folderInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Removal{}, nil
	}
	if unlessForbidden(err) != nil {
		return Removal{}, explain("remove", path, err)
	}
	done := Removal{Kept: kept}
	entries, err := o.readDir(path)
	if unlessForbidden(err) != nil {
		return done, explain("remove", path, err)
	}
	action := Action{Verb: RemoveTree, Path: path}
	if err != nil {
		action.Entries = []string{"(this user may not see what is in it)"}
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		if len(below(done.Kept, child)) > 0 || slices.Contains(done.Kept, child) {
			continue
		}
		o.nodes[child] = &node{name: e.Name(), removed: true}
		action.Entries = append(action.Entries, entryName(e))
	}
	stays = stays || len(done.Kept) > 0
	if !stays {
		o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	}
	if done.Changed = !stays || len(action.Entries) > 0; done.Changed {
		o.record(action)
	}
	return done, nil
}

func entryName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// RemoveEmpty implements Cleanup.
func (o *overlay) RemoveEmpty(path string) (bool, error) {
	stays := o.Stays(path)
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if err != nil || !info.IsDir() || stays {
		return false, nil // what cannot be seen is not removed either
	}
	if entries, err := o.readDir(path); err != nil || len(entries) > 0 {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	o.record(Action{Verb: Remove, Path: path})
	return true, nil
}

// Mounts implements Cleanup.
func (o *overlay) Mounts(folder string) ([]string, error) {
	mounts, err := o.Host.Mounts(folder)
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(mounts, func(m string) bool { return o.unmounted[m] }), err
}

// Unmount implements Cleanup.
func (o *overlay) Unmount(path string, _ []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unmounted[path] = true
	o.record(Action{Verb: Unmount, Path: path})
	return nil
}

// RemovePods implements Cleanup.
func (o *overlay) RemovePods(_ context.Context, _ string, pods []Pod) ([]Pod, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range pods {
		o.record(Action{Verb: RemovePod, Name: p.String()})
	}
	return pods, nil
}

// RemoveLeftover implements Cleanup.
func (o *overlay) RemoveLeftover(_ context.Context, l Leftover) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(Action{Verb: Remove, Name: l.String()})
	return nil
}

// gone tells whether a plan has removed path, or a folder above it.
func (o *overlay) gone(path string) bool {
	for ; ; path = filepath.Dir(path) {
		if n := o.nodes[path]; n != nil {
			return n.removed
		}
		if path == filepath.Dir(path) {
			return false
		}
	}
}
