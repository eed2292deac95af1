// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package lossy

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/slipway-k8s/slipway/test/lab/journal"
)

// device is the file. It can't be told to make holes: the loop device then writes zeros instead.
type device struct {
	fs.Inode
	disk   *os.File
	writes *journal.Writer
}

var (
	_ fs.NodeOpener    = (*device)(nil)
	_ fs.NodeReader    = (*device)(nil)
	_ fs.NodeWriter    = (*device)(nil)
	_ fs.NodeFsyncer   = (*device)(nil)
	_ fs.NodeGetattrer = (*device)(nil)
)

// Open makes the kernel pass each request on at once: this machine's page cache must not keep what the journal lacks.
func (d *device) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, fs.OK
}

func (d *device) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := d.disk.Stat()
	if err != nil {
		return fs.ToErrno(err)
	}
	out.Mode, out.Size = 0o600, uint64(info.Size())
	return fs.OK
}

func (d *device) Read(_ context.Context, _ fs.FileHandle, dest []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.disk.ReadAt(dest, offset)
	if err != nil && err != io.EOF {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), fs.OK
}

func (d *device) Write(_ context.Context, _ fs.FileHandle, data []byte, offset int64) (uint32, syscall.Errno) {
	if err := d.writes.Write(offset, data); err != nil {
		return 0, syscall.EIO
	}
	n, err := d.disk.WriteAt(data, offset)
	return uint32(n), fs.ToErrno(err)
}

func (d *device) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if err := d.writes.Flush(); err != nil {
		return syscall.EIO
	}
	return fs.OK
}
