// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan wraps a host: NewOverlay turns a host.Reader into a dry run's host, and NewRecorder records a run's changes.
// Neither embeds a host.Remote or a host.Writer, so a method added to either of these doesn't compile until both implement it.
// docs/design/plans.md has the reasons.
package plan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// NewOverlay returns a dry run's host. It answers reads from this run's writes, then from base. Writes and unit actions change
// only memory, and a recorder around the overlay passes each change to record, in order. The overlay refuses the same orders as
// the real host, such as writing to a symlink or into a missing directory.
//
// With only a Reader, the overlay can't change the host or send a packet. It answers for the rest itself: probes succeed, units
// are in the state their planned actions lead to, and other questions that would leave the host return ErrNotInPlan.
//
// The overlay knows nothing of files this user may not read: writing such a file is recorded as a change, since it may be one, and
// reading it is an error that says to run as root. So a plan never shows, for example, a new CA in place of an existing CA.
func NewOverlay(base host.Reader, record func(host.Action)) host.Host {
	return NewRecorder(&overlay{
		base: base, RuntimeReader: base, SystemReader: base, NetworkReader: base,
		nodes: map[string]*node{}, owners: map[string]host.Owner{}, units: map[string]unitPlan{}, unmounted: map[string]bool{}, removed: map[string]bool{},
		swap: map[string]bool{}, images: map[string]plannedImage{},
	}, record)
}

// overlay answers for files and units itself, because a run changes them. The embedded facts are the same before and after.
type overlay struct {
	host.RuntimeReader
	host.SystemReader
	host.NetworkReader

	base host.Reader

	mu     sync.Mutex
	nodes  map[string]*node      // by cleaned path
	owners map[string]host.Owner // by cleaned path
	units  map[string]unitPlan

	freed     []string // base's paths of what RemoveTree takes away
	unmounted map[string]bool
	removed   map[string]bool         // Pods, by ID
	modules   []string                // to load
	swap      map[string]bool         // areas turned on or off
	images    map[string]plannedImage // by name
}

// EffectiveUID is root's: a plan shows a run by root, and says which files only root could have read.
func (o *overlay) EffectiveUID() int { return 0 }

// node is a file or directory that the plan has changed.
type node struct {
	name    string
	removed bool
	mode    fs.FileMode // with fs.ModeDir for a directory
	data    []byte
	from    string // the real path of content that existed before the plan moved it
	// unknown reports whether the plan doesn't know the content.
	unknown bool
	// set describes a file of WriteSet.
	set *host.SetFile
}

// node is its own fs.FileInfo.
func (n *node) Name() string { return n.name }

func (n *node) Size() int64 { return int64(len(n.data)) }

func (n *node) Mode() fs.FileMode { return n.mode }

func (n *node) ModTime() time.Time { return time.Time{} }

func (n *node) IsDir() bool { return n.mode.IsDir() }

func (n *node) Sys() any { return nil }

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
	case n == nil || n.from != "":
		data, err := o.base.ReadFile(o.origin(path))
		return data, unreadable(err)
	case n.IsDir():
		return nil, &fs.PathError{Op: "read", Path: path, Err: unix.EISDIR}
	case n.unknown:
		return nil, &fs.PathError{Op: "read", Path: path, Err: host.ErrNotInPlan}
	}
	return bytes.Clone(n.data), nil
}

func (o *overlay) Open(path string) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	n := o.nodes[path]
	switch {
	case o.gone(path):
		return nil, missing(path)
	case n != nil && n.from == "":
		return nil, &fs.PathError{Op: "open", Path: path, Err: host.ErrNotInPlan}
	}
	f, err := o.base.Open(o.origin(path))
	return f, unreadable(err)
}

func (o *overlay) HasFile(f host.SetFile) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(f.Path)
	n := o.nodes[path]
	switch {
	case o.gone(path):
		return false, nil
	case n == nil:
		return o.base.HasFile(f)
	case n.IsDir():
		return false, &host.KindError{Path: path, Want: "regular file", Got: n.mode}
	case n.set != nil:
		f.Path = path
		return *n.set == f, nil
	}
	data, err := o.readFile(path)
	return err == nil && n.mode == f.Mode && sha256.Sum256(data) == f.SHA256, host.Explain("read", path, err)
}

// AwaitFile assumes that the other program has written an acceptable file.
func (o *overlay) AwaitFile(context.Context, string, func([]byte) error) error { return nil }

func (o *overlay) SurvivesRemoval(path string) (bool, error) { return o.base.SurvivesRemoval(path) }

func (o *overlay) CreatedBySlipway(path string) bool { return o.base.CreatedBySlipway(path) }

func (o *overlay) Unchanged(path string) bool { return o.base.Unchanged(path) }

func (o *overlay) Lstat(path string) (fs.FileInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lstat(filepath.Clean(path))
}

func (o *overlay) lstat(path string) (fs.FileInfo, error) { return o.info(path, o.base.Lstat) }

// Stat relies on runs never writing a symlink.
func (o *overlay) Stat(path string) (fs.FileInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stat(filepath.Clean(path))
}

func (o *overlay) stat(path string) (fs.FileInfo, error) { return o.info(path, o.base.Stat) }

// info describes a path as the plan left it, or asks base.
func (o *overlay) info(path string, ask func(string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	if o.gone(path) {
		return nil, missing(path)
	}
	if n := o.nodes[path]; n != nil {
		return o.owned(path, n), nil
	}
	info, err := ask(o.origin(path))
	if err != nil {
		return nil, err
	}
	return o.owned(path, info), nil
}

func (o *overlay) dirInfo(path string) (fs.FileInfo, error) {
	return host.DirInfoBy(o.lstat, o.stat, path)
}

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
	entries, err := o.base.ReadDir(o.origin(path))
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

func missing(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
}

// unreadable adds the remedy to an error about a file that a dry run may not read.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return errors.WithMessage(err, "a plan depends on this host's files; run this as root")
	}
	return err
}

// gone reports whether the plan has removed path or a directory above it.
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

func (o *overlay) Mounts(dir string) ([]string, error) {
	mounts, err := o.base.Mounts(dir)
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(mounts, func(m string) bool { return o.unmounted[m] }), err
}
