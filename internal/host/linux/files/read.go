// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
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
