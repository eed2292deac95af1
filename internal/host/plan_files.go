// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// node is a file or folder that differs from base.
type node struct {
	name    string
	removed bool
	mode    fs.FileMode // with fs.ModeDir for a folder
	data    []byte
	secret  bool
}

// node is its own fs.FileInfo.
func (n *node) Name() string       { return n.name }
func (n *node) Size() int64        { return int64(len(n.data)) }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Time{} }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

// ReadFile implements Files.
func (o *overlay) ReadFile(path string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readFile(filepath.Clean(path))
}

func (o *overlay) readFile(path string) ([]byte, error) {
	n := o.nodes[path]
	switch {
	case o.gone(path):
		return nil, missing(path)
	case n == nil:
		data, err := o.Host.ReadFile(path)
		return data, unreadable(err)
	case n.IsDir():
		return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EISDIR}
	}
	return bytes.Clone(n.data), nil
}

// Lstat implements Files.
func (o *overlay) Lstat(path string) (fs.FileInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lstat(filepath.Clean(path))
}

func (o *overlay) lstat(path string) (fs.FileInfo, error) {
	if o.gone(path) {
		return nil, missing(path)
	}
	if n := o.nodes[path]; n != nil {
		return o.owned(path, n), nil
	}
	info, err := o.Host.Lstat(path)
	if err != nil {
		return nil, err
	}
	return o.owned(path, info), nil
}

// Stat implements Files. What a run writes is never a symlink.
func (o *overlay) Stat(path string) (fs.FileInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stat(filepath.Clean(path))
}

func (o *overlay) stat(path string) (fs.FileInfo, error) {
	if o.nodes[path] != nil || o.gone(path) {
		return o.lstat(path)
	}
	info, err := o.Host.Stat(path)
	if err != nil {
		return nil, err
	}
	return o.owned(path, info), nil
}

// folderInfo is that of the real host.
func (o *overlay) folderInfo(path string) (fs.FileInfo, error) {
	return folderInfoBy(o.lstat, o.stat, path)
}

// ReadDir implements Files.
func (o *overlay) ReadDir(path string) ([]fs.DirEntry, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readDir(filepath.Clean(path))
}

func (o *overlay) readDir(path string) ([]fs.DirEntry, error) {
	n := o.nodes[path]
	if o.gone(path) {
		return nil, missing(path)
	}
	entries, err := o.Host.ReadDir(path)
	if err != nil && (n == nil || !errors.Is(err, fs.ErrNotExist)) {
		return nil, unreadable(err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return o.nodes[filepath.Join(path, e.Name())] != nil
	})
	for p, n := range o.nodes { // in any order: sorted below
		if filepath.Dir(p) == path && p != path && !n.removed {
			entries = append(entries, fs.FileInfoToDirEntry(n))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// WriteFile implements Files.
func (o *overlay) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(path, data, mode, LooksSecret(data), nil)
}

// WriteSecret implements Files.
func (o *overlay) WriteSecret(path string, data []byte) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(path, data, 0o600, true, nil)
}

// LooksSecret recognises private keys in PEM and kubeconfigs that hold one.
func LooksSecret(data []byte) bool {
	return bytes.Contains(data, []byte("PRIVATE KEY-----")) || bytes.Contains(data, []byte("client-key-data:"))
}

// write takes a file; owner is nil for root, whose a file is that a run writes.
func (o *overlay) write(path string, data []byte, mode fs.FileMode, secret bool, owner *Owner) (bool, error) {
	path = filepath.Clean(path)
	if err := o.checkFolder(filepath.Dir(path)); err != nil {
		return false, explain("write", path, err)
	}
	same, err := o.holds(path, data, mode, owner)
	if same || err != nil {
		return false, explain("write", path, err)
	}
	info, err := o.lstat(path)
	created := errors.Is(err, fs.ErrNotExist)
	if n := o.nodes[path]; n != nil && n.secret {
		secret = true
	}
	data = bytes.Clone(data)
	o.nodes[path] = &node{name: filepath.Base(path), mode: mode, data: data, secret: secret}
	before, known := o.ownerOf(path, info)
	o.owners[path] = Owner{} // root: a plan is of what root would do
	action := Action{Verb: Write, Path: path, Mode: mode, Secret: secret, Created: created}
	if !secret {
		action.Data = data
	}
	o.record(action)
	if owner != nil {
		o.owners[path] = *owner
		if created {
			before, known = Owner{}, true
		}
		if !known || before != *owner {
			o.setOwner(path, *owner)
		}
	}
	return true, nil
}

// checkFolder refuses what openFolder does.
func (o *overlay) checkFolder(path string) error {
	_, err := o.folderInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "open folder", Path: path, Err: unix.ENOENT}
	}
	return unlessForbidden(err)
}

// holds reports whether path is a file with these bytes, this mode and, where
// one is given, this owner, as far as this user may see.
func (o *overlay) holds(path string, data []byte, mode fs.FileMode, owner *Owner) (bool, error) {
	info, err := o.lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unlessForbidden(err)
	}
	if !info.Mode().IsRegular() {
		return false, &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	whose, _ := OwnerIn(info)
	if info.Mode() != mode || info.Size() != int64(len(data)) || owner != nil && whose != *owner {
		return false, nil
	}
	have, err := o.readFile(path)
	if err != nil {
		return false, unlessForbidden(err)
	}
	return bytes.Equal(have, data), nil
}

// EnsureDir implements Files.
func (o *overlay) EnsureDir(path string, mode fs.FileMode) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.folderInfo(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := o.ensureParent(filepath.Dir(path)); err != nil {
			return explain("make folder", path, err)
		}
		o.makeDir(path, mode)
	case errors.Is(err, fs.ErrPermission): // it may be there or not
		o.makeDir(path, mode)
	case err != nil:
		return explain("make folder", path, err)
	default:
		if narrowed, wider := narrow(info.Mode(), mode); wider {
			if whose, known := o.ownerOf(path, info); known {
				o.owners[path] = whose
			}
			o.putDir(Chmod, path, narrowed)
		}
	}
	return nil
}

func (o *overlay) ensureParent(path string) error {
	_, err := o.lstat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return unlessForbidden(err)
	}
	if err := o.ensureParent(filepath.Dir(path)); err != nil {
		return err
	}
	o.makeDir(path, parentMode)
	return nil
}

func (o *overlay) makeDir(path string, mode fs.FileMode) {
	o.owners[path] = Owner{} // root: a plan is of what root would do
	o.putDir(Mkdir, path, mode)
}

func (o *overlay) putDir(verb Verb, path string, mode fs.FileMode) {
	o.nodes[path] = &node{name: filepath.Base(path), mode: mode | fs.ModeDir}
	o.record(Action{Verb: verb, Path: path, Mode: mode.Perm()})
}

// Remove implements Files.
func (o *overlay) Remove(path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if unlessForbidden(err) != nil {
		return explain("remove", path, err)
	}
	if err == nil && info.IsDir() {
		entries, err := o.readDir(path)
		if err == nil && len(entries) > 0 {
			err = unix.ENOTEMPTY
		}
		if unlessForbidden(err) != nil {
			return explain("remove", path, err)
		}
	}
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	o.record(Action{Verb: Remove, Path: path})
	return nil
}

func missing(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
}

// unlessForbidden drops an error that comes of this user's rights.
func unlessForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// unreadable says what a dry run needs to know what it may not read.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: a plan depends on what is there; run this as root", err)
	}
	return err
}
