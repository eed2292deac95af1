// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Disks tries what a folder's file system can do. Nothing stays of it.
type Disks interface {
	// ProbeWrite makes a small file in a folder that exists, and syncs it. The
	// file has no name: nobody meets it, and nothing stays of it.
	ProbeWrite(dir string) error
	// SyncTimes appends blocks to a file in a folder that exists, as etcd does
	// to its log, each followed by fdatasync, and returns how long each took.
	// It ends with ctx, or after a hundred.
	SyncTimes(ctx context.Context, dir string) ([]time.Duration, error)
	// ImageFolder is where the container runtime keeps images; empty if it
	// does not say.
	ImageFolder(ctx context.Context, socket string) (string, error)
}

const (
	// syncBlock and syncBlocks: etcd's documentation measures a disk by
	// fdatasync after each of many writes of 2300 bytes, which is about an
	// entry of its log: https://etcd.io/docs/v3.5/op-guide/hardware/#disks.
	// The 99th percentile needs a hundred.
	syncBlock  = 2300
	syncBlocks = 100
)

// ProbeWrite implements Disks.
func (r *Real) ProbeWrite(dir string) error {
	dir = r.path(dir)
	if _, err := folderInfo(dir); err != nil {
		return explain("write to", dir, err)
	}
	f, err := openUnnamed(dir)
	if err == nil {
		_, err = f.WriteString("probe\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return explain("write to", dir, err)
}

// SyncTimes implements Disks. The file has no name, so that nothing stays of
// it even if this process is killed.
func (r *Real) SyncTimes(ctx context.Context, dir string) ([]time.Duration, error) {
	dir = r.path(dir)
	f, err := openUnnamed(dir)
	if err != nil {
		return nil, explain("measure the disk of", dir, err)
	}
	defer f.Close()
	// As etcd does. Where the file system cannot, the writes do it.
	_ = unix.Fallocate(int(f.Fd()), 0, 0, syncBlock*syncBlocks)
	block := []byte(strings.Repeat("x", syncBlock))
	var took []time.Duration
	for len(took) < syncBlocks && (ctx.Err() == nil || len(took) == 0) {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, explain("measure the disk of", dir, err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return nil, explain("measure the disk of", dir, err)
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// openUnnamed makes a file that goes away when it is closed. Where the file
// system knows no such files, it has a name for an instant.
func openUnnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	before, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, ".probe"+tempSuffix)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	_ = os.Chtimes(dir, time.Time{}, before.ModTime())
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ImageFolder implements Disks.
func (r *Real) ImageFolder(ctx context.Context, socket string) (string, error) {
	conn, err := r.runtimes.get(socket)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	answer, err := cri.NewImageServiceClient(conn).ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", nil
	case err != nil:
		return "", criFailure(socket, "ask for the folder of images", err)
	case len(answer.GetImageFilesystems()) == 0:
		return "", nil
	}
	return answer.GetImageFilesystems()[0].GetFsId().GetMountpoint(), nil
}
