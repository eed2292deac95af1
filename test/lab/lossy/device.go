// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package lossy

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/journal"
)

// fileName is the disk's name in the directory that serve mounts.
const fileName = "disk"

// serve mounts a directory with a file that's the disk: each write to the file goes to the disk and into the journal, and each
// fsync becomes a flush.
func serve(dir string, disk *os.File, writes *journal.Writer) (*fuse.Server, error) {
	root := &fs.Inode{}
	options := &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxWrite: 1 << 20, FsName: "lossy", Name: "lossy"},
		OnAdd: func(ctx context.Context) {
			root.AddChild(fileName, root.NewPersistentInode(ctx, &device{disk: disk, writes: writes}, fs.StableAttr{}), false)
		},
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	server, err := fs.Mount(dir, root, options)
	if err != nil {
		return nil, errors.Wrap(err, "cannot serve a disk by FUSE")
	}
	return server, closeOnExec()
}

// closeOnExec keeps the connection to FUSE from the nodes that this program boots. go-fuse doesn't, and the kernel only ends a disk
// whose server was killed once no process has it open.
func closeOnExec() error {
	const dir = "/proc/self/fd"
	open, err := os.ReadDir(dir)
	if err != nil {
		return errors.Wrap(err, "cannot list this program's open files")
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if path, _ := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && path == "/dev/fuse" {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

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
