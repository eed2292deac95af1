// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// NewRecorder returns a host that passes each order on to base, and each change to record, in a plan's words: a run's record is
// its dry run's plan. An order that fails or finds its work done is no change. record may be called concurrently.
func NewRecorder(base host.Host, record func(host.Action)) host.Host {
	return &recorder{Reader: base, remote: base, writer: base, record: record, secrets: map[string]bool{}}
}

type recorder struct {
	host.Reader
	remote host.Remote
	writer host.Writer
	record func(host.Action)

	mu      sync.Mutex      // of the fields below
	secrets map[string]bool // paths that held a secret
	making  sync.Mutex      // held while directories are created, so each is recorded once
}

func (r *recorder) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return r.write(path, data, mode, host.LooksSecret(data), func() (bool, error) { return r.writer.WriteFile(path, data, mode) })
}

func (r *recorder) WriteSecret(path string, data []byte) (bool, error) {
	return r.write(path, data, 0o600, true, func() (bool, error) { return r.writer.WriteSecret(path, data) })
}

func (r *recorder) write(path string, data []byte, mode fs.FileMode, secret bool, do func() (bool, error)) (bool, error) {
	path = filepath.Clean(path)
	created := r.isMissing(path)
	changed, err := do()
	if !changed {
		return changed, err
	}
	r.mu.Lock()
	secret = secret || r.secrets[path]
	r.secrets[path] = secret
	r.mu.Unlock()
	action := host.Action{Verb: host.Write, Path: path, Mode: mode, Secret: secret, Created: created}
	if !secret {
		action.Data = bytes.Clone(data)
	}
	r.record(action)
	return changed, err
}

func (r *recorder) isMissing(path string) bool {
	_, err := r.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func (r *recorder) WriteStream(path string, fill func(io.Writer) error) error {
	_, err := r.write(path, nil, 0o600, true, func() (bool, error) {
		err := r.writer.WriteStream(path, fill)
		return err == nil, err
	})
	return err
}

func (r *recorder) WriteTree(path string, fill func(string) error) error {
	return r.done(r.writer.WriteTree(path, fill), host.Action{Verb: host.Mkdir, Path: filepath.Clean(path), Mode: 0o700})
}

func (r *recorder) Rename(from, to string) (bool, error) {
	changed, err := r.writer.Rename(from, to)
	if changed {
		r.record(host.Action{Verb: host.Rename, Path: filepath.Clean(from), NewPath: filepath.Clean(to)})
	}
	return changed, err
}

func (r *recorder) EnsureDir(path string, mode fs.FileMode) error {
	r.making.Lock()
	defer r.making.Unlock()
	path = filepath.Clean(path)
	var made []string // the topmost first
	for dir := path; r.isMissing(dir); dir = filepath.Dir(dir) {
		made = append([]string{dir}, made...)
	}
	_, seen := r.Lstat(path)
	before, _ := r.Stat(path)
	if err := r.writer.EnsureDir(path, mode); err != nil {
		return err
	}
	if errors.Is(seen, fs.ErrPermission) { // a plan: it may exist or not
		made = []string{path}
	}
	for _, dir := range made {
		m := fs.FileMode(host.ParentMode)
		if dir == path {
			m = mode
		}
		r.record(host.Action{Verb: host.Mkdir, Path: dir, Mode: m.Perm()})
	}
	after, err := r.Stat(path)
	if err == nil && before != nil && len(made) == 0 && before.Mode() != after.Mode() {
		r.record(host.Action{Verb: host.Chmod, Path: path, Mode: after.Mode().Perm()})
	}
	return nil
}

func (r *recorder) Remove(path string) error {
	wasThere := !r.isMissing(path)
	err := r.writer.Remove(path)
	if err == nil && wasThere {
		r.record(host.Action{Verb: host.Remove, Path: filepath.Clean(path)})
	}
	return err
}

func (r *recorder) done(err error, a host.Action) error {
	if err == nil {
		r.record(a)
	}
	return err
}

// RemoveTree reads the directory before the removal, and leaves errors to it; only a plan removes a directory it can't read.
func (r *recorder) RemoveTree(path string) (host.Removal, error) {
	action := host.Action{Verb: host.RemoveTree, Path: filepath.Clean(path)}
	mounts, _ := r.Mounts(path)
	stays, _ := r.SurvivesRemoval(path)
	entries, hidden := taken(r.ReadDir, action.Path, mounts, stays)
	done, err := r.writer.RemoveTree(path)
	action.Entries = slices.DeleteFunc(entries, func(name string) bool { return !r.isMissing(filepath.Join(action.Path, name)) })
	if errors.Is(hidden, fs.ErrPermission) {
		action.Entries = []string{"(this user may not see the entries)"}
	}
	if done.Changed {
		r.record(action)
	}
	return done, err
}

func (r *recorder) RemoveEmpty(path string) (bool, error) {
	removed, err := r.writer.RemoveEmpty(path)
	if removed {
		r.record(host.Action{Verb: host.Remove, Path: filepath.Clean(path)})
	}
	return removed, err
}

func (r *recorder) Unmount(path string, flags []string) error {
	return r.done(r.writer.Unmount(path, flags), host.Action{Verb: host.Unmount, Path: path})
}

func (r *recorder) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	before, known := host.Owner{}, r.isMissing(path) // a new file would be root's
	if !known {
		before, known = ownerBy(r.Lstat, path)
	}
	changed, err := r.write(path, data, mode, host.LooksSecret(data), func() (bool, error) { return r.writer.WriteOwned(path, data, mode, owner) })
	if changed {
		r.gave(path, before, known, owner)
	}
	return changed, err
}

func (r *recorder) SetOwner(path string, owner host.Owner, mode fs.FileMode) error {
	before, known := ownerBy(r.Lstat, path)
	info, seen := r.Lstat(path)
	if err := r.writer.SetOwner(path, owner, mode); err != nil {
		return err
	}
	r.gave(path, before, known, owner)
	if seen == nil && info.Mode() != mode {
		r.record(host.Action{Verb: host.Chmod, Path: filepath.Clean(path), Mode: mode})
	}
	return nil
}

func (r *recorder) SetTreeOwner(path string, owner host.Owner) ([]string, error) {
	before, known := ownerBy(r.Stat, path)
	kept, err := r.writer.SetTreeOwner(path, owner)
	if err == nil {
		r.gave(path, before, known, owner)
	}
	return kept, err
}

// SyncFiles isn't recorded: it changes no file.
func (r *recorder) SyncFiles(path string) error { return r.writer.SyncFiles(path) }

// LockAccounts isn't recorded: the lock itself is no change.
func (r *recorder) LockAccounts() (release func(), err error) { return r.writer.LockAccounts() }

func ownerBy(stat func(string) (fs.FileInfo, error), path string) (whose host.Owner, known bool) {
	info, err := stat(path)
	if err != nil {
		return host.Owner{}, false
	}
	return host.OwnerIn(info)
}

// gave records path's new owner, unless it had that owner before.
func (r *recorder) gave(path string, before host.Owner, known bool, owner host.Owner) {
	if known && before == owner {
		return
	}
	r.record(host.Action{Verb: host.Chown, Path: filepath.Clean(path), UID: owner.UID, GID: owner.GID})
}

func (r *recorder) WriteSet(files []host.SetFile, fill func(put func(string, io.Reader) error) error) error {
	created := map[string]bool{}
	for _, f := range files {
		created[f.Path] = r.isMissing(f.Path)
	}
	if err := r.writer.WriteSet(files, fill); err != nil {
		return err
	}
	for _, f := range files {
		r.record(host.Action{
			Verb: host.Write, Path: filepath.Clean(f.Path), Mode: f.Mode, Created: created[f.Path], Data: []byte(host.Summary(f)), Opaque: true,
		})
	}
	return nil
}
