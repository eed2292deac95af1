// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// times writes block n times.
func times(block []byte, n int) func(io.Writer) error {
	return func(w io.Writer) error {
		for range n {
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestWriteStream(t *testing.T) {
	for _, mask := range []int{0, 0o277} {
		dir := t.TempDir()
		setUmask(t, mask)
		path := filepath.Join(dir, "snapshot.db")
		fixture.PutMode(t, filepath.Join(dir, ".snapshot.db.slipway-ABCDEFGH"), "half a snapsh", 0o600)
		for _, n := range []int{1, 30, 0} { // more than two chunks, then nothing
			block := bytes.Repeat([]byte{byte(n), 'x'}, 500_000)
			if err := onlyFiles().WriteStream(path, times(block, n)); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			got, readErr := os.ReadFile(path)
			if err != nil || readErr != nil || info.Mode() != 0o600 || !bytes.Equal(got, bytes.Repeat(block, n)) {
				t.Errorf("mode %v, %d bytes, %v, %v", info.Mode(), len(got), err, readErr)
			}
			if os.Getuid() == 0 && (!onlyFiles().CreatedBySlipway(path) || !onlyFiles().Unchanged(path)) {
				t.Error("it is not known as Slipway's")
			}
		}
		if diff := cmp.Diff([]string{"snapshot.db"}, fixture.Entries(t, dir)); diff != "" {
			t.Errorf("directory (-want +got):\n%s", diff)
		}
	}
}

// TestWriteStreamMemory writes 200 MB, and holds none of it.
func TestWriteStreamMemory(t *testing.T) {
	block := make([]byte, 1_000_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := onlyFiles().WriteStream(filepath.Join(t.TempDir(), "f"), times(block, 200)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 2<<20 {
		t.Errorf("allocated %d bytes", allocated)
	}
}

// TestWriteStreamBreaksOff: the old file stays, and nothing else does.
func TestWriteStreamBreaksOff(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	broken := errors.New("the connection is gone")
	fill := func(w io.Writer) error { _, err := w.Write([]byte("some")); return errors.Join(err, broken) }
	for _, want := range [][]string{nil, {"f"}} {
		err := onlyFiles().WriteStream(path, fill)
		if !errors.Is(err, broken) || !strings.HasSuffix(err.Error(), path+": "+broken.Error()) {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff(want, fixture.Entries(t, dir)); diff != "" {
			t.Errorf("directory (-want +got):\n%s", diff)
		}
		fixture.PutMode(t, path, "old", 0o644)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("the file now holds %q", got)
	}
}

func TestWriteStreamRefuses(t *testing.T) {
	dir := t.TempDir()
	things := strange(t, dir)
	before := fixture.Entries(t, dir)
	overlay := plan.NewOverlay(onlyFiles(), func(a host.Action) { t.Errorf("recorded %v", a) })
	for label, h := range map[string]host.Host{"real": onlyFiles(), "overlay": overlay} {
		for name := range things {
			var kind *host.KindError
			if err := h.WriteStream(filepath.Join(dir, name), times(nil, 1)); !errors.As(err, &kind) {
				t.Errorf("%s, %s: %v", label, name, err)
			}
			if name == "directory" {
				continue
			}
			if err := h.WriteStream(filepath.Join(dir, name, "f"), times(nil, 1)); err == nil {
				t.Errorf("%s, below %s: no error", label, name)
			}
		}
		if err := h.WriteStream(dir+"/none/f", times(nil, 1)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, no directory: %v", label, err)
		}
	}
	if diff := cmp.Diff(before, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// TestDiskFullOfMuch fills a small disk with a stream and with a tree.
func TestDiskFullOfMuch(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	block := make([]byte, 500_000)
	for what, err := range map[string]error{
		dir + "/f": onlyFiles().WriteStream(dir+"/f", times(block, 10)),
		dir + "/d": onlyFiles().WriteTree(dir+"/d", func(at string) error {
			f, err := os.Create(filepath.Join(at, "db"))
			if err != nil {
				return err
			}
			return errors.Join(times(block, 10)(f), f.Close())
		}),
	} {
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s %v", what, err)
		}
		fact.Error(t, err, what, "free", "space")
	}
	if left := fixture.Entries(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, filepath.Join(dir, "f"), "text", 0o600)
	overlay := plan.NewOverlay(onlyFiles(), func(host.Action) {})
	for _, h := range []host.Host{onlyFiles(), overlay} {
		f, err := h.Open(dir + "/f")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if string(got) != "text" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		f.Close()
		if _, err := h.Open(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("nothing: %v", err)
		}
	}
	if err := overlay.WriteStream(dir+"/f", nil); err != nil {
		t.Fatal(err)
	}
	_, readErr := overlay.ReadFile(dir + "/f")
	if _, err := overlay.Open(dir + "/f"); !errors.Is(err, host.ErrNotInPlan) || !errors.Is(readErr, host.ErrNotInPlan) {
		t.Errorf("what a plan would write: %v, %v", err, readErr)
	}
}
