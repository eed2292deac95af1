// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package lossy makes disks for nodes that lose every unflushed write in a power cut, at any instant of a run: this machine's
// kernel writes to a file of FUSE through a loop device, and the server behind that file keeps a journal.
package lossy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/test/lab/journal"
)

// size of the disks. They're sparse.
const size = "16G"

// Disk is an ext4 file system on a disk with a journal of all writes since it was made.
type Disk struct {
	dir    string
	at     string // the mount point
	server *server
}

// The files of a disk: its first and its present content, the journal, and the directory served by FUSE.
func (d *Disk) first() string   { return filepath.Join(d.dir, "first") }
func (d *Disk) now() string     { return filepath.Join(d.dir, "now") }
func (d *Disk) journal() string { return filepath.Join(d.dir, "journal") }
func (d *Disk) served() string  { return filepath.Join(d.dir, "served") }

// New makes a disk with its files in dir, and mounts it.
func New(ctx context.Context, dir, mountPoint string) (*Disk, error) {
	d := &Disk{dir: dir, at: mountPoint}
	if err := makeFileSystem(ctx, d.first()); err != nil {
		return nil, err
	}
	if err := command(ctx, "cp", "--sparse=always", d.first(), d.now()); err != nil {
		return nil, err
	}
	if err := d.mount(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// makeFileSystem makes a sparse ext4 file system. It initializes everything at once, since the kernel would do that later with
// requests for zeros.
func makeFileSystem(ctx context.Context, path string) error {
	if err := command(ctx, "truncate", "--size="+size, path); err != nil {
		return err
	}
	return command(ctx, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", path)
}

func (d *Disk) mount(ctx context.Context) error {
	if err := os.Mkdir(d.served(), 0o700); err != nil {
		return errors.Wrap(err, "cannot make a directory for a disk")
	}
	if err := share(d.served()); err != nil {
		return err
	}
	var err error
	if d.server, err = startServer(d); err != nil {
		return err
	}
	return Mount(ctx, filepath.Join(d.served(), fileName), d.at)
}

// Instant returns how many writes and flushes the disk is sure to have kept so far.
func (d *Disk) Instant() (uint64, error) { return journal.Flushed(d.journal()) }

// Cut makes another disk: what a power cut after so many writes and flushes would have left. It also returns how many of these
// were lost. The disk is a file, for Mount.
func (d *Disk) Cut(ctx context.Context, path string, entries uint64) (lost uint64, err error) {
	if err := command(ctx, "cp", "--sparse=always", d.first(), path); err != nil {
		return 0, err
	}
	_, lost, err = journal.Replay(d.journal(), path, entries)
	return lost, err
}

// Mount mounts a disk from a file. It stays mounted until Unmount.
func Mount(ctx context.Context, path, mountPoint string) error {
	if err := os.MkdirAll(mountPoint, 0o755); err != nil {
		return errors.Wrap(err, "cannot make a mount point")
	}
	if err := share(mountPoint); err != nil {
		return err
	}
	return command(ctx, "mount", "-o", "loop", path, mountPoint)
}

// share mounts a directory on itself, so that another mount there disappears from all namespaces once it's removed from this one.
// A node that boots meanwhile inherits it, and would keep a disk busy.
func share(dir string) error {
	err := unix.Mount(dir, dir, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_SHARED, "")
	}
	return errors.Wrapf(err, "cannot share the mounts on %s", dir)
}

// releaseTime bounds the wait for the kernel to release a disk. On a busy machine, that has taken more than a minute.
const releaseTime = 10 * time.Minute

// Close unmounts the disk, if that hasn't been done. Its journal stays.
func (d *Disk) Close() error {
	err := Unmount(d.at)
	if err == nil {
		err = Unmount(d.served())
	}
	if err == nil && d.server != nil {
		d.server.end()
	}
	return err
}

// Unmount removes everything that's mounted on a mount point, if anything is.
func Unmount(mountPoint string) error {
	for {
		err := whenReleased(func() error { return unix.Unmount(mountPoint, unix.UMOUNT_NOFOLLOW) })
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // not mounted
			return nil
		case err != nil:
			return errors.Wrapf(err, "cannot unmount %s", mountPoint)
		}
	}
}

// whenReleased unmounts once nothing keeps a disk busy: the kernel takes down the mounts of a killed node after its last process.
func whenReleased(unmount func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	return retry.Policy{
		First: 50 * time.Millisecond, Slowest: time.Second,
		Retryable: func(err error) bool { return errors.Is(err, unix.EBUSY) },
	}.Do(ctx, func(context.Context) error { return unmount() })
}

// command runs a program of this machine.
func command(ctx context.Context, argv ...string) error {
	said, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	return errors.Wrapf(err, "%s: %s", strings.Join(argv, " "), said)
}
