// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

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

func (o *overlay) WriteStream(path string, _ func(io.Writer) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if err := o.checkDir(filepath.Dir(path)); err != nil {
		return host.Explain("write", path, err)
	}
	info, err := o.lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	if !errors.Is(err, fs.ErrNotExist) && unlessForbidden(err) != nil {
		return host.Explain("write", path, err)
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: 0o600, unknown: true}
	o.owners[path] = host.Owner{} // a plan shows a run by root
	return nil
}

func (o *overlay) WriteTree(path string, _ func(string) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	path = filepath.Clean(path)
	if err := o.checkDir(filepath.Dir(path)); err != nil {
		return host.Explain("create directory", path, err)
	}
	if err := host.Vacant(o.lstat, path); unlessForbidden(err) != nil {
		return host.Explain("create directory", path, err)
	}
	o.makeDir(path, 0o700)
	return nil
}

func (o *overlay) Rename(from, to string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	moves, err := host.Movable(o.lstat, from, to)
	if errors.Is(err, fs.ErrPermission) { // it may exist or not
		moves, err = true, nil
	}
	if err == nil && moves {
		err = o.checkDir(filepath.Dir(to))
	}
	if err != nil || !moves {
		return false, host.Explain("rename "+from+" to", to, err)
	}
	o.move(from, to)
	return true, nil
}

// move moves the plan's knowledge of from, and notes where base has the rest.
func (o *overlay) move(from, to string) {
	top := &node{mode: fs.ModeDir | 0o700, unknown: true}
	if info, err := o.lstat(from); err == nil {
		top = &node{mode: info.Mode(), from: o.origin(from)}
		if whose, known := o.ownerOf(from, info); known {
			o.owners[from] = whose
		}
	}
	if n := o.nodes[from]; n != nil {
		top = n
	}
	top.name = filepath.Base(to)
	o.nodes[from] = top
	rebase(o.nodes, from, to)
	rebase(o.owners, from, to)
	o.nodes[from] = &node{name: filepath.Base(from), removed: true}
}

// rebase moves the entries of a path and everything below it to another path.
func rebase[V any](byPath map[string]V, from, to string) {
	for path, v := range maps.Clone(byPath) {
		if path == from || strings.HasPrefix(path, from+"/") {
			delete(byPath, path)
			byPath[to+strings.TrimPrefix(path, from)] = v
		}
	}
}

// origin returns base's path for a path that the plan may have moved.
func (o *overlay) origin(path string) string {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if n := o.nodes[at]; n != nil && n.from != "" {
			return filepath.Join(n.from, strings.TrimPrefix(path, at))
		}
	}
	return path
}
