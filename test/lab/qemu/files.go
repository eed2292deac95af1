// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
	"github.com/slipway-k8s/slipway/test/lab/journal"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// MakeShare makes a disk with files of this machine, under the given names. It needs no journal, as nobody writes to it.
func MakeShare(ctx context.Context, disk string, files map[string]string) error {
	dir, err := os.MkdirTemp(filepath.Dir(disk), "share-")
	if err != nil {
		return errors.Wrap(err, "cannot make a directory for shared files")
	}
	defer os.RemoveAll(dir)
	size := int64(32 << 20)
	for name, from := range files {
		info, err := os.Stat(from)
		if err != nil {
			return errors.Wrap(err, "cannot share a file")
		}
		size += info.Size() + info.Size()/16
		if err := command(ctx, "cp", "--reflink=auto", from, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return parts.MakeExt4(ctx, dir, disk, fmt.Sprintf("%dM", size>>20), "-O", "^has_journal", "-m", "0")
}

// swapSectors is the size of the disk for swap.
const swapSectors = 256 << 20 / journal.SectorSize

// makeSwap makes a disk with one partition for swap, which the machine still has to format.
func makeSwap(path string) error {
	const first = 2048
	table := make([]byte, journal.SectorSize)
	row := table[446:]
	row[4] = 0x82 // Linux swap
	binary.LittleEndian.PutUint32(row[8:], first)
	binary.LittleEndian.PutUint32(row[12:], swapSectors-first)
	table[510], table[511] = 0x55, 0xaa
	if err := os.WriteFile(path, table, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, swapSectors*journal.SectorSize)
}

// command runs a program of this machine.
func command(ctx context.Context, argv ...string) error {
	said, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	return errors.Wrapf(err, "%s: %s", strings.Join(argv, " "), said)
}

// consoleEnd returns the last lines of the console, for an error.
func (m *Machine) consoleEnd() string {
	said, err := os.ReadFile(m.Console())
	if err != nil {
		return ""
	}
	said = bytes.TrimSpace(said)
	const most = 8000
	return "\nits console ends with:\n" + string(said[max(len(said)-most, 0):])
}

// Inspect shows fn the files of a machine that's off, as its next boot will find them. fn must not start goroutines.
func (m *Machine) Inspect(ctx context.Context, fn func(root string) error) error {
	copied, root := filepath.Join(m.Dir, "inspected"), filepath.Join(m.Dir, "root")
	if m.Running() {
		return errors.Errorf("%s is running", m.Name)
	}
	if err := copySparse(ctx, m.disk(), copied); err != nil { // mounting it changes it
		return err
	}
	defer os.Remove(copied)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return errors.Wrap(err, "cannot make a directory for a disk")
	}
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		if err := command(ctx, "mount", "-o", "loop", copied, root); err != nil {
			return err
		}
		defer func() { _ = unix.Unmount(root, unix.MNT_DETACH) }()
		return fn(root)
	})
}
