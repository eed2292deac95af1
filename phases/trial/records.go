// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Last returns this node's last change; nil if there was none.
func Last(env *step.Env) (*Record, error) {
	return newest(env, func(*Record) bool { return true })
}

// Unfinished returns this node's last change if a run has still to store it or to put it back; nil if there's none. Only the holder of
// the node's lock may act on it: until then, another run may still end it.
func Unfinished(env *step.Env) (*Record, error) {
	last, err := Last(env)
	if err != nil || last == nil || last.Finished() {
		return nil, err
	}
	return last, nil
}

// LastCompleted returns this node's last completed change; nil if there's none.
func LastCompleted(env *step.Env) (*Record, error) {
	return newest(env, func(r *Record) bool { return r.State == Completed })
}

// IsRestoredEdit reports whether the content of a file is somebody's edit that the last change of it has put back, or has taken
// back an earlier change of. The host has noted it as Slipway's own.
func IsRestoredEdit(env *step.Env, path string, data []byte) (bool, error) {
	var f *File
	last, err := newest(env, func(r *Record) bool {
		i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
		if i >= 0 {
			f = &r.Files[i]
		}
		return i >= 0
	})
	switch {
	case err != nil || f == nil:
		return false, err
	case f.WantedIsEdit && host.HashOf(data) == f.Wanted:
		return true, nil
	case !f.Edited || f.BackupName == "":
		return false, nil
	}
	kept, err := last.OriginalContent(env, *f)
	return bytes.Equal(kept, data), err
}

// Wrote reports whether the content of a file comes from its last completed change.
func Wrote(env *step.Env, path string, data []byte) (wrote bool, err error) {
	_, err = newest(env, func(r *Record) bool {
		i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
		wrote = r.State == Completed && i >= 0 && r.Files[i].After == host.HashOf(data)
		return r.State == Completed && i >= 0
	})
	return wrote, err
}

func newest(env *step.Env, fits func(*Record) bool) (*Record, error) {
	root := node.BackupRoot(env)
	entries, err := env.Host.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(b.Name(), a.Name()) })
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), dirPrefix) || !e.IsDir() {
			continue
		}
		r, err := read(env, filepath.Join(root, e.Name()))
		if err != nil {
			return nil, err
		}
		if r != nil && fits(r) {
			return r, nil
		}
	}
	return nil, nil
}

// Reload returns a record as it's on disk by now.
func (r *Record) Reload(env *step.Env) (*Record, error) { return read(env, r.dir) }

// read returns the record in a directory; nil if its run was interrupted before it changed anything.
func read(env *step.Env, dir string) (*Record, error) {
	r := &Record{dir: dir}
	found, err := ownership.ReadYAML(env.Host, filepath.Join(dir, recordFile), r)
	if err != nil || !found {
		return nil, err
	}
	return r, nil
}
