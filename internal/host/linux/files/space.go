// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) Space(path string) (host.Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(r.path(path), &s); err != nil {
		return host.Space{}, host.Explain("look at the file system of", path, err)
	}
	var at unix.Stat_t
	if err := unix.Stat(r.path(path), &at); err != nil {
		return host.Space{}, host.Explain("look at", path, err)
	}
	block := uint64(s.Frsize)
	return host.Space{Free: s.Bavail * block, Total: s.Blocks * block, FreeInodes: s.Ffree, TotalInodes: s.Files, Device: at.Dev}, nil
}
