// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (o *overlay) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return o.write(path, data, mode, nil)
}

func (o *overlay) WriteSecret(path string, data []byte) (bool, error) {
	return o.write(path, data, 0o600, nil)
}

func (o *overlay) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	return o.write(path, data, mode, &owner)
}

// write plans a file. A nil owner is root, who owns a run's files.
func (o *overlay) write(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	same, err := o.holds(path, data, mode, owner)
	if same || err != nil {
		return false, host.Explain("write", path, err)
	}
	o.put(path, &node{mode: mode, data: bytes.Clone(data)})
	if owner != nil {
		o.owners[path] = *owner
	}
	return true, nil
}

func (o *overlay) WriteStream(path string, _ func(io.Writer) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if _, err := o.replaceable(path); err != nil {
		return host.Explain("write", path, err)
	}
	o.put(path, &node{mode: 0o600, unknown: true})
	return nil
}

func (o *overlay) WriteSet(files []host.SetFile, _ func(func(string, io.Reader) error) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range files {
		f.Path = filepath.Clean(f.Path)
		if _, err := o.replaceable(f.Path); err != nil {
			return host.Explain("write", f.Path, err)
		}
		o.put(f.Path, &node{mode: f.Mode, unknown: true, set: &f})
	}
	return nil
}

// put plans a new file or directory. It's root's: a plan shows a run by root.
func (o *overlay) put(path string, n *node) {
	n.name = filepath.Base(path)
	o.nodes[path], o.owners[path] = n, host.Owner{}
}

func (o *overlay) drop(path string) { o.nodes[path] = &node{name: filepath.Base(path), removed: true} }

// checkDir refuses the same paths as the real host.
func (o *overlay) checkDir(path string) error {
	_, err := o.dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "open directory", Path: path, Err: unix.ENOENT}
	}
	return host.IgnoreForbidden(err)
}

// replaceable describes the regular file at path, if this user sees it, or nil. It refuses the same paths as the real host.
func (o *overlay) replaceable(path string) (fs.FileInfo, error) {
	if err := o.checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	info, err := o.lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, nil
	case err == nil && !info.Mode().IsRegular():
		return nil, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	return info, err
}

// holds reports whether path is a file with these bytes, this mode and, unless it's nil, this owner, as far as this user may see.
func (o *overlay) holds(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	info, err := o.replaceable(path)
	if info == nil || err != nil {
		return false, err
	}
	whose, _ := host.OwnerIn(info)
	if info.Mode() != mode || info.Size() != int64(len(data)) || owner != nil && whose != *owner {
		return false, nil
	}
	have, err := o.readFile(path)
	return err == nil && bytes.Equal(have, data), host.IgnoreForbidden(err)
}

func (o *overlay) EnsureDir(path string, mode fs.FileMode) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.dirInfo(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := o.ensureParent(filepath.Dir(path)); err != nil {
			return host.Explain("create directory", path, err)
		}
		o.makeDir(path, mode)
	case errors.Is(err, fs.ErrPermission): // it may exist or not
		o.makeDir(path, mode)
	case err != nil:
		return host.Explain("create directory", path, err)
	default:
		if narrowed, wider := host.Narrow(info.Mode(), mode); wider {
			if whose, known := o.ownerOf(path, info); known {
				o.owners[path] = whose
			}
			o.nodes[path] = &node{name: filepath.Base(path), mode: narrowed | fs.ModeDir}
		}
	}
	return nil
}

func (o *overlay) ensureParent(path string) error {
	_, err := o.lstat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return host.IgnoreForbidden(err)
	}
	if err := o.ensureParent(filepath.Dir(path)); err != nil {
		return err
	}
	o.makeDir(path, host.ParentMode)
	return nil
}

func (o *overlay) makeDir(path string, mode fs.FileMode) { o.put(path, &node{mode: mode | fs.ModeDir}) }

func (o *overlay) WriteTree(path string, _ func(string) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if err := o.checkDir(filepath.Dir(path)); err != nil {
		return host.Explain("create directory", path, err)
	}
	if err := host.CheckNotExists(o.lstat, path); host.IgnoreForbidden(err) != nil {
		return host.Explain("create directory", path, err)
	}
	o.makeDir(path, 0o700)
	return nil
}

// ownedInfo describes a file whose owner the plan sets.
type ownedInfo struct {
	fs.FileInfo
	stat syscall.Stat_t
}

func (i ownedInfo) Sys() any { return &i.stat }

// owned describes path with its owner in the plan.
func (o *overlay) owned(path string, info fs.FileInfo) fs.FileInfo {
	whose, changed := o.owners[path]
	if !changed {
		return info
	}
	with := ownedInfo{FileInfo: info}
	if stat, known := info.Sys().(*syscall.Stat_t); known {
		with.stat = *stat
	}
	with.stat.Uid, with.stat.Gid = uint32(whose.UID), uint32(whose.GID)
	return with
}

func (o *overlay) SetOwner(path string, owner host.Owner, mode fs.FileMode) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	return host.Explain("change the owner of", path, o.give(path, owner, mode))
}

func (o *overlay) give(path string, owner host.Owner, mode fs.FileMode) error {
	info, err := o.lstat(path)
	if errors.Is(err, fs.ErrPermission) { // its owner isn't known
		o.owners[path] = owner
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if have, known := host.OwnerIn(info); !known || have != owner {
		if err := host.CheckSingleLink(path, info); err != nil {
			return err
		}
		o.owners[path] = owner
	}
	if info.Mode() == mode {
		return nil
	}
	data, err := o.readFile(path)
	if err != nil {
		return err
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: mode, data: data}
	return nil
}

// SetTreeOwner doesn't look into the directory.
func (o *overlay) SetTreeOwner(path string, owner host.Owner) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if _, err := o.dirInfo(path); host.IgnoreForbidden(err) != nil {
		return nil, host.Explain("change the owner of", path, err)
	}
	o.owners[path] = owner
	return nil, nil
}

// SyncFiles does nothing: a plan is in memory.
func (o *overlay) SyncFiles(string) error { return nil }

// LockAccounts does nothing: a plan changes no accounts.
func (o *overlay) LockAccounts() (func(), error) { return func() {}, nil }

// ownerOf returns path's owner, if it's known; info is nil if this user may not see it.
func (o *overlay) ownerOf(path string, info fs.FileInfo) (whose host.Owner, known bool) {
	if whose, known = o.owners[path]; known || info == nil {
		return whose, known
	}
	return host.OwnerIn(info)
}
