// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (o *overlay) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(path, data, mode, nil)
}

func (o *overlay) WriteSecret(path string, data []byte) (bool, error) {
	return o.WriteFile(path, data, 0o600)
}

// write plans a file. A nil owner is root, who owns a run's files.
func (o *overlay) write(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	path = filepath.Clean(path)
	if err := o.checkDir(filepath.Dir(path)); err != nil {
		return false, host.Explain("write", path, err)
	}
	same, err := o.holds(path, data, mode, owner)
	if same || err != nil {
		return false, host.Explain("write", path, err)
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: mode, data: bytes.Clone(data)}
	o.owners[path] = host.Owner{} // a plan shows a run by root
	if owner != nil {
		o.owners[path] = *owner
	}
	return true, nil
}

// checkDir refuses the same paths as the real host.
func (o *overlay) checkDir(path string) error {
	_, err := o.dirInfo(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "open directory", Path: path, Err: unix.ENOENT}
	}
	return unlessForbidden(err)
}

// holds reports whether path is a file with these bytes, this mode and, unless it's nil, this owner, as far as this user may see.
func (o *overlay) holds(path string, data []byte, mode fs.FileMode, owner *host.Owner) (bool, error) {
	info, err := o.lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unlessForbidden(err)
	}
	if !info.Mode().IsRegular() {
		return false, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	whose, _ := host.OwnerIn(info)
	if info.Mode() != mode || info.Size() != int64(len(data)) || owner != nil && whose != *owner {
		return false, nil
	}
	have, err := o.readFile(path)
	if err != nil {
		return false, unlessForbidden(err)
	}
	return bytes.Equal(have, data), nil
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
			o.putDir(path, narrowed)
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
	o.makeDir(path, host.ParentMode)
	return nil
}

func (o *overlay) makeDir(path string, mode fs.FileMode) {
	o.owners[path] = host.Owner{} // a plan shows a run by root
	o.putDir(path, mode)
}

func (o *overlay) putDir(path string, mode fs.FileMode) {
	o.nodes[path] = &node{name: filepath.Base(path), mode: mode | fs.ModeDir}
}

func (o *overlay) Remove(path string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	info, err := o.lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if unlessForbidden(err) != nil {
		return host.Explain("remove", path, err)
	}
	if err == nil && info.IsDir() {
		entries, err := o.readDir(path)
		if err == nil && len(entries) > 0 {
			err = unix.ENOTEMPTY
		}
		if unlessForbidden(err) != nil {
			return host.Explain("remove", path, err)
		}
	}
	o.nodes[path] = &node{name: filepath.Base(path), removed: true}
	return nil
}
