// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/pkg/errors"
)

// ReadFile follows symlinks: the user's CA may be stored elsewhere.
func (r *Root) ReadFile(path string) ([]byte, error) { return os.ReadFile(r.path(path)) }

func (r *Root) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(r.path(path)) }

func (r *Root) Stat(path string) (fs.FileInfo, error) { return os.Stat(r.path(path)) }

func (r *Root) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(r.path(path)) }

func (r *Root) ReadTail(path string, most int64) ([]byte, error) {
	f, err := os.Open(r.path(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(info.Size()-most, 0)
	return io.ReadAll(io.NewSectionReader(f, from, most))
}

func (r *Root) ReadHead(path string, most int64) ([]byte, error) {
	f, err := os.Open(r.path(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func (r *Root) Open(path string) (*os.File, error) { return os.Open(r.path(path)) }

// awaitInterval is how often AwaitFile looks.
const awaitInterval = 50 * time.Millisecond

func (r *Root) AwaitFile(ctx context.Context, path string, accept func(data []byte) error) error {
	ticker := time.NewTicker(awaitInterval)
	defer ticker.Stop()
	for {
		data, err := r.ReadFile(path)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return err
		}
		var last error
		switch {
		case missing:
			last = errors.Errorf("%s does not exist yet", path)
		case accept != nil:
			last = accept(data)
		}
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Wrap(context.Cause(ctx), last.Error())
		case <-ticker.C:
		}
	}
}
