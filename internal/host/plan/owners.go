// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

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

func (o *overlay) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.write(path, data, mode, &owner)
}

func (o *overlay) Give(path string, owner host.Owner, mode fs.FileMode) error {
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
		if err := host.OtherNames(path, info); err != nil {
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

// GiveTree doesn't look into the directory.
func (o *overlay) GiveTree(path string, owner host.Owner) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if _, err := o.dirInfo(path); unlessForbidden(err) != nil {
		return nil, host.Explain("change the owner of", path, err)
	}
	o.owners[path] = owner
	return nil, nil
}

// LockAccounts does nothing: a plan changes no accounts.
func (o *overlay) LockAccounts() (func(), error) { return func() {}, nil }

// ownerOf returns path's owner, if it's known; info is nil if this user may not see it.
func (o *overlay) ownerOf(path string, info fs.FileInfo) (whose host.Owner, known bool) {
	if whose, known = o.owners[path]; known || info == nil {
		return whose, known
	}
	return host.OwnerIn(info)
}
