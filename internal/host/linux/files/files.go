// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package files works on the real host's files: atomic, durable writes, removal that follows no link, notes on who made a file,
// and the owners of files. Root is the entry point.
package files

import (
	"context"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// Root is a host's files: a host.FileReader, PathReader, FileWriter, OwnerWriter and DiskTester, safe for concurrent use.
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

// guard returns the lock of this process's writers of path: they mustn't remove each other's temporary files as leftovers.
func (r *Root) guard(path string) *sync.Mutex {
	return &r.writing[maphash.String(guardSeed, filepath.Clean(path))%uint64(len(r.writing))]
}

var guardSeed = maphash.MakeSeed()

// ReadFile follows symlinks: the user's CA may be stored elsewhere.
func (r *Root) ReadFile(path string) ([]byte, error) { return os.ReadFile(r.path(path)) }

func (r *Root) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(r.path(path)) }

func (r *Root) Stat(path string) (fs.FileInfo, error) { return os.Stat(r.path(path)) }

func (r *Root) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(r.path(path)) }

func (r *Root) Open(path string) (*os.File, error) { return os.Open(r.path(path)) }

const awaitInterval = 50 * time.Millisecond

func (r *Root) AwaitFile(ctx context.Context, path string, accept func(data []byte) error) error {
	for {
		data, err := r.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = errors.Errorf("%s does not exist yet", path)
		case err != nil:
			return err
		case accept != nil:
			err = accept(data)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Wrap(context.Cause(ctx), err.Error())
		case <-time.After(awaitInterval):
		}
	}
}
