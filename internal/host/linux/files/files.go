// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package files works on the real host's files: atomic, durable writes, removal that follows no link, notes on who made a file,
// and the owners of files.
package files

import (
	"hash/maphash"
	"path/filepath"
	"strings"
	"sync"
)

// Root is a host's files. It implements host.FileReader, PathReader, FileWriter, OwnerWriter and DiskTester, and it's safe for
// concurrent use.
type Root struct {
	root    string
	writing [32]sync.Mutex // by path: see guard
}

// At returns the files below root: the path /etc/x is root/etc/x.
func At(root string) *Root { return &Root{root: root} }

// path returns this process's path for a path of the host.
func (r *Root) path(p string) string {
	if r.root == "" {
		return p
	}
	return filepath.Join(r.root, p)
}

// hostPath is the inverse of path.
func (r *Root) hostPath(p string) string { return strings.TrimPrefix(p, r.root) }

// guard returns the lock that this process's writers of path share, so they don't remove each other's temporary files as
// leftovers.
func (r *Root) guard(path string) *sync.Mutex {
	return &r.writing[maphash.String(guardSeed, filepath.Clean(path))%uint64(len(r.writing))]
}

var guardSeed = maphash.MakeSeed()
