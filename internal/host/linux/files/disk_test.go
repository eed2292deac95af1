// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// unchanged fails the test if do changes dir's contents or time.
func unchanged(t *testing.T, dir string, do func()) {
	t.Helper()
	old := time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)
	if err := os.Chtimes(dir, time.Time{}, old); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	do()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !info.ModTime().Equal(old) {
		t.Errorf("the directory's time is %v", info.ModTime())
	}
	if after := contents(t, dir); after != before {
		t.Errorf("the directory holds %s, and held %s", after, before)
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append(names, more...)...)
}

// A probe does what a write does, including a rename. It leaves nothing behind, and removes a killed probe's leftovers.
func TestProbeWriteLeavesNothing(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	unchanged(t, dir, func() {
		fixture.Plant(t, dir, ".probe.slipway-ABCDEFGH")
		if err := os.Chtimes(dir, time.Time{}, time.Date(2020, 1, 2, 3, 4, 5, 678, time.UTC)); err != nil {
			t.Error(err)
		}
		if err := onlyFilesAt(root).ProbeWrite("/etc"); err != nil {
			t.Error(err)
		}
	})
	if _, err := unix.Read(fd, make([]byte, 4096)); err != nil {
		t.Errorf("no file was renamed: %v", err)
	}
}

func TestProbeWriteFails(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var kind *host.KindError
	if err := onlyFilesAt(root).ProbeWrite("/file"); !errors.As(err, &kind) {
		t.Errorf("a file: %v", err)
	}
	if err := onlyFilesAt(root).ProbeWrite("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	// This file system accepts no files, not even from root.
	if err := onlyFiles().ProbeWrite("/proc/self"); err == nil {
		t.Error("a file was made in /proc")
	}
}

func TestSyncTimes(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	unchanged(t, root, func() {
		took, err := onlyFilesAt(root).SyncTimes(ctx, "/")
		if err != nil || len(took) == 0 || len(took) > syncBlocks {
			t.Errorf("%d times, %v", len(took), err)
		}
	})
	cancel()
	if took, err := onlyFilesAt(root).SyncTimes(ctx, "/"); err != nil || len(took) != 1 {
		t.Errorf("out of time: %v, %v", took, err)
	}
	if _, err := onlyFilesAt(root).SyncTimes(ctx, "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
