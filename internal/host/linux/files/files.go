// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package files has the files of the real host: atomic, durable writes, removal that follows no link, notes on who made
// a file, and the owners of files.
package files

import (
	"hash/maphash"
	"path/filepath"
	"strings"
	"sync"
)

// Root has the files of a host. It is safe for concurrent use.
type Root struct {
	root    string
	writing [32]sync.Mutex // by path: see guard
}

// At returns the files below root: the path /etc/x is root/etc/x.
func At(root string) *Root { return &Root{root: root} }

// path returns where this process finds a path of the host.
func (r *Root) path(p string) string {
	if r.root == "" {
		return p
	}
	return filepath.Join(r.root, p)
}

// hostPath is the inverse of path: it returns a path as the host sees it.
func (r *Root) hostPath(p string) string { return strings.TrimPrefix(p, r.root) }

// guard returns the lock that all writers of path in this process share, so that
// they do not remove each other's temporary files as leftovers.
func (r *Root) guard(path string) *sync.Mutex {
	return &r.writing[maphash.String(guardSeed, filepath.Clean(path))%uint64(len(r.writing))]
}

var guardSeed = maphash.MakeSeed()
