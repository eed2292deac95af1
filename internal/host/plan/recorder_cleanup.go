// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// RemoveTree implements FileWriter. It reads the directory before the removal, and
// leaves errors to it; only a plan removes a directory that it can't read.
func (r *recorder) RemoveTree(path string) (host.Removal, error) {
	action := host.Action{Verb: host.RemoveTree, Path: filepath.Clean(path)}
	mounts, _ := r.Mounts(path)
	stays, _ := r.Stays(path)
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

// RemoveEmpty implements FileWriter.
func (r *recorder) RemoveEmpty(path string) (bool, error) {
	removed, err := r.writer.RemoveEmpty(path)
	if removed {
		r.record(host.Action{Verb: host.Remove, Path: filepath.Clean(path)})
	}
	return removed, err
}

// Unmount implements FileWriter.
func (r *recorder) Unmount(path string, flags []string) error {
	return r.done(r.writer.Unmount(path, flags), host.Action{Verb: host.Unmount, Path: path})
}

// RemovePods implements RuntimeWriter.
func (r *recorder) RemovePods(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
	removed, err := r.writer.RemovePods(ctx, socket, pods)
	for _, p := range removed {
		r.record(host.Action{Verb: host.RemovePod, Name: p.String()})
	}
	return removed, err
}

// RemoveLeftover implements NetworkWriter.
func (r *recorder) RemoveLeftover(ctx context.Context, l host.Leftover) error {
	return r.done(r.writer.RemoveLeftover(ctx, l), host.Action{Verb: host.Remove, Name: l.String()})
}
