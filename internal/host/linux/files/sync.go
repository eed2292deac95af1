// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) SyncFiles(path string) error {
	path = r.path(path)
	return host.Explain("sync the file system of", path, Sync(path))
}

// Sync writes the file system that has path to the disk. path is this process's own.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return stderrors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
