// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package lossy

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that was synced survives a power cut, and one that wasn't doesn't. The kernel and the file system are real.
func TestCut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "mounted")
	d, err := New(t.Context(), dir, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(at, "kept"), "synced", true)
	write(t, filepath.Join(at, "lost"), "not synced", false)
	cut, err := d.Instant()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(at, "later"), "synced", true)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "left")
	if _, err := d.Cut(t.Context(), left, cut); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "again")
	if err := Mount(t.Context(), left, again); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(again, 0) }()
	if data, err := os.ReadFile(filepath.Join(again, "kept")); err != nil || string(data) != "synced" {
		t.Errorf("the synced file is %q, %v", data, err)
	}
	for _, name := range []string{"lost", "later"} {
		if data, err := os.ReadFile(filepath.Join(again, name)); err == nil && len(data) > 0 {
			t.Errorf("%s has survived with %q", name, data)
		}
	}
}

func write(t *testing.T, path, data string, sync bool) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(data); err != nil {
		t.Fatal(err)
	}
	if !sync {
		return
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}
