// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package lossy

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A file that was synced survives a power cut, and one that wasn't doesn't. The kernel and the file system are real.
func TestCut(t *testing.T) {
	d := mounted(t)
	dir, at := d.dir, d.at
	write(t, filepath.Join(at, "kept"), "synced", true)
	write(t, filepath.Join(at, "lost"), "not synced", false)
	cut, err := d.Instant()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(at, "later"), "synced", true)
	inheritMounts(t)
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
	defer func() { _ = Unmount(again) }()
	if data, err := os.ReadFile(filepath.Join(again, "kept")); err != nil || string(data) != "synced" {
		t.Errorf("the synced file is %q, %v", data, err)
	}
	for _, name := range []string{"lost", "later"} {
		if data, err := os.ReadFile(filepath.Join(again, name)); err == nil && len(data) > 0 {
			t.Errorf("%s has survived with %q", name, data)
		}
	}
}

// inheritMounts starts a process with a mount namespace like a node's, which has inherited the mounts of all disks.
func inheritMounts(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation=slave", "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it ends with the test
	if _, err := in.Write([]byte("ready")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
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

// mounted is a disk with a mounted file system.
func mounted(t *testing.T) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	d, err := New(t.Context(), dir, filepath.Join(dir, "mounted"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// A program on the disk starts while Go's runtime stops everything for a collection of garbage: neither waits for the other.
func TestRunFromDisk(t *testing.T) {
	path := filepath.Join(mounted(t).at, "true")
	if err := command(t.Context(), "cp", "/bin/true", path); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		forget(t, path)
		go runtime.GC()
		if err := command(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
}

// forget makes the kernel read the file from the disk again.
func forget(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
}
