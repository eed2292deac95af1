// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// NewRecorder returns a host that passes each order on to base, and hands the
// changes to record, in the words of a plan: a run's record is the plan of its dry
// run. An order that fails or finds its work done is no change. record may be
// called concurrently.
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
	making  sync.Mutex      // held while directories are created, so that each is recorded once
}

// WriteFile implements FileWriter.
func (r *recorder) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return r.write(path, data, mode, host.LooksSecret(data), func() (bool, error) { return r.writer.WriteFile(path, data, mode) })
}

// WriteSecret implements FileWriter.
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

// WriteStream implements FileWriter.
func (r *recorder) WriteStream(path string, fill func(io.Writer) error) error {
	_, err := r.write(path, nil, 0o600, true, func() (bool, error) {
		err := r.writer.WriteStream(path, fill)
		return err == nil, err
	})
	return err
}

// WriteTree implements FileWriter.
func (r *recorder) WriteTree(path string, fill func(string) error) error {
	return r.done(r.writer.WriteTree(path, fill), host.Action{Verb: host.Mkdir, Path: filepath.Clean(path), Mode: 0o700})
}

// Rename implements FileWriter.
func (r *recorder) Rename(from, to string) (bool, error) {
	changed, err := r.writer.Rename(from, to)
	if changed {
		r.record(host.Action{Verb: host.Rename, Path: filepath.Clean(from), NewPath: filepath.Clean(to)})
	}
	return changed, err
}

// EnsureDir implements FileWriter.
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

// Remove implements FileWriter.
func (r *recorder) Remove(path string) error {
	wasThere := !r.isMissing(path)
	err := r.writer.Remove(path)
	if err == nil && wasThere {
		r.record(host.Action{Verb: host.Remove, Path: filepath.Clean(path)})
	}
	return err
}

// ReloadUnits implements UnitWriter.
func (r *recorder) ReloadUnits(ctx context.Context) error {
	return r.done(r.writer.ReloadUnits(ctx), host.Action{Verb: host.Reload})
}

// EnableUnit implements UnitWriter.
func (r *recorder) EnableUnit(ctx context.Context, name string) error {
	before, asked := r.Unit(ctx, name)
	err := r.writer.EnableUnit(ctx, name)
	if asked == nil && before.UnitFileState == "enabled" {
		return err
	}
	return r.done(err, host.Action{Verb: host.Enable, Unit: host.UnitName(name)})
}

// StartUnit implements UnitWriter.
func (r *recorder) StartUnit(ctx context.Context, name string) error {
	return r.done(r.writer.StartUnit(ctx, name), host.Action{Verb: host.Start, Unit: host.UnitName(name)})
}

// StopUnit implements UnitWriter.
func (r *recorder) StopUnit(ctx context.Context, name string) error {
	return r.done(r.writer.StopUnit(ctx, name), host.Action{Verb: host.Stop, Unit: host.UnitName(name)})
}

// SuspendUnit implements UnitWriter. It isn't recorded: only StopUnit lasts.
func (r *recorder) SuspendUnit(ctx context.Context, name string) error {
	return r.writer.SuspendUnit(ctx, name)
}

// KillUnit implements UnitWriter, as SuspendUnit.
func (r *recorder) KillUnit(ctx context.Context, name string) error {
	return r.writer.KillUnit(ctx, name)
}

// RestartUnit implements UnitWriter.
func (r *recorder) RestartUnit(ctx context.Context, name string) error {
	return r.done(r.writer.RestartUnit(ctx, name), host.Action{Verb: host.Restart, Unit: host.UnitName(name)})
}

// PullImage implements RuntimeWriter.
func (r *recorder) PullImage(ctx context.Context, socket, image string) error {
	return r.done(r.writer.PullImage(ctx, socket, image), host.Action{Verb: host.Pull, Image: image})
}

// StopContainer implements RuntimeWriter. The kubelet starts the container of
// a static Pod again, so the node is as before: that is not recorded.
func (r *recorder) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	return r.writer.StopContainer(ctx, socket, id, grace)
}

// RemoveExited implements RuntimeWriter. The containers have ended, so that isn't
// recorded either.
func (r *recorder) RemoveExited(ctx context.Context, socket, namespace, name string) error {
	return r.writer.RemoveExited(ctx, socket, namespace, name)
}

func (r *recorder) done(err error, a host.Action) error {
	if err == nil {
		r.record(a)
	}
	return err
}
