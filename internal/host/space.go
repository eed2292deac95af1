// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Space is how full a file system is.
type Space struct {
	// Free is what programs may still write, in bytes; Total is its size.
	Free, Total uint64
	// FreeInodes is how many files can still be created. If TotalInodes is 0, the
	// file system does not count them.
	FreeInodes, TotalInodes uint64
	// Device identifies the file system on this host.
	Device uint64
}

// Space implements PathReader.
func (r *Root) Space(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(r.path(path), &s); err != nil {
		return Space{}, explain("look at the file system of", path, err)
	}
	var at unix.Stat_t
	if err := unix.Stat(r.path(path), &at); err != nil {
		return Space{}, explain("look at", path, err)
	}
	block := uint64(s.Frsize)
	return Space{Free: s.Bavail * block, Total: s.Blocks * block, FreeInodes: s.Ffree, TotalInodes: s.Files, Device: at.Dev}, nil
}

// ReadTail implements FileReader.
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

// ReadHead implements FileReader.
func (r *Root) ReadHead(path string, most int64) ([]byte, error) {
	f, err := os.Open(r.path(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}
