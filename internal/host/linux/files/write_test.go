// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func setUmask(t *testing.T, mask int) {
	t.Helper()
	old := unix.Umask(mask)
	t.Cleanup(func() { unix.Umask(old) })
}

func TestWriteFile(t *testing.T) {
	tests := map[string]struct {
		before  string // content, if there is a file
		mode    fs.FileMode
		data    string
		want    fs.FileMode
		changed bool
	}{
		"new":              {data: "a", want: 0o644, changed: true},
		"new, empty":       {data: "", want: 0o644, changed: true},
		"same":             {before: "a", mode: 0o644, data: "a", want: 0o644},
		"other bytes":      {before: "b", mode: 0o644, data: "a", want: 0o644, changed: true},
		"longer":           {before: "abc", mode: 0o644, data: "a", want: 0o644, changed: true},
		"made empty":       {before: "abc", mode: 0o644, data: "", want: 0o644, changed: true},
		"wider before":     {before: "a", mode: 0o644, data: "a", want: 0o600, changed: true},
		"narrower before":  {before: "a", mode: 0o600, data: "a", want: 0o644, changed: true},
		"unreadable mode":  {before: "b", mode: 0o000, data: "a", want: 0o600, changed: true},
		"executable wider": {before: "a", mode: 0o755, data: "a", want: 0o644, changed: true},
	}
	for name, test := range tests {
		for _, mask := range []int{0, 0o077, 0o777} {
			t.Run(fmt.Sprintf("%s, umask %03o", name, mask), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "f")
				if test.before != "" {
					fixture.PutMode(t, path, test.before, test.mode)
				}
				setUmask(t, mask)
				changed, err := onlyFiles().WriteFile(path, []byte(test.data), test.want)
				if err != nil || changed != test.changed {
					t.Fatalf("changed %v, error %v; want %v and none", changed, err, test.changed)
				}
				info, err := os.Lstat(path)
				if err != nil || info.Mode() != test.want {
					t.Errorf("mode %v, error %v; want %v", info.Mode(), err, test.want)
				}
				got, err := os.ReadFile(path)
				if err != nil || string(got) != test.data {
					t.Errorf("content %q, error %v; want %q", got, err, test.data)
				}
				if diff := cmp.Diff([]string{"f"}, fixture.Entries(t, filepath.Dir(path))); diff != "" {
					t.Errorf("directory (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestWriteFileLeavesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.key")
	fixture.PutMode(t, path, "key", 0o600)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Lstat(path)
	changed, err := onlyFiles().WriteSecret(path, []byte("key"))
	if changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	after, _ := os.Lstat(path)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("the file was touched: %v, was %v", after.ModTime(), before.ModTime())
	}
}

// A key that others can read isn't narrowed in place: a process that has it open would keep reading.
func TestWriteSecretNarrows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.key")
	fixture.PutMode(t, path, "key", 0o644)
	before, _ := os.Lstat(path)
	changed, err := onlyFiles().WriteSecret(path, []byte("key"))
	if !changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	after, _ := os.Lstat(path)
	if after.Mode() != 0o600 || os.SameFile(before, after) {
		t.Errorf("mode %v, same inode %v", after.Mode(), os.SameFile(before, after))
	}
}

func TestWriteFileReplacesHardLink(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, filepath.Join(dir, "other"), "old", 0o644)
	if err := os.Link(filepath.Join(dir, "other"), filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if _, err := onlyFiles().WriteFile(filepath.Join(dir, "f"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "other")); string(got) != "old" {
		t.Errorf("the other name now holds %q", got)
	}
}

// strange makes one thing of each kind that must not be written through.
func strange(t *testing.T, dir string) map[string]string {
	t.Helper()
	fixture.PutMode(t, filepath.Join(dir, "victim"), "precious", 0o644)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("victim", filepath.Join(dir, "link")))
	must(os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	must(os.Mkdir(filepath.Join(dir, "directory"), 0o755))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	must(err)
	t.Cleanup(func() { l.Close() })
	return map[string]string{"link": "symlink", "dangling": "symlink", "directory": "directory", "fifo": "named pipe", "sock": "socket"}
}

func TestWriteFileRefuses(t *testing.T) {
	dir := t.TempDir()
	things := strange(t, dir)
	before := fixture.Entries(t, dir)
	overlay := plan.NewOverlay(onlyFiles(), func(a host.Action) { t.Errorf("recorded %v", a) })
	for label, h := range map[string]host.Host{"real": onlyFiles(), "overlay": overlay} {
		for name, kind := range things {
			t.Run(label+" "+kind+" "+name, func(t *testing.T) {
				path := filepath.Join(dir, name)
				_, err := h.WriteFile(path, []byte("x"), 0o644)
				checkKind(t, err, path, kind, "regular file")
			})
		}
	}
	if diff := cmp.Diff(before, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "victim")); string(got) != "precious" {
		t.Errorf("wrote through a symlink: %q", got)
	}
}

func TestWriteFileRefusesDir(t *testing.T) {
	dir := t.TempDir()
	strange(t, dir)
	overlay := plan.NewOverlay(onlyFiles(), func(a host.Action) { t.Errorf("recorded %v", a) })
	for label, h := range map[string]host.Host{"real": onlyFiles(), "overlay": overlay} {
		for name, kind := range map[string]string{"link": "symlink", "dangling": "symlink", "victim": "regular file", "none": ""} {
			t.Run(label+" "+name, func(t *testing.T) {
				_, err := h.WriteFile(filepath.Join(dir, name, "f"), nil, 0o644)
				if kind != "" {
					checkKind(t, err, filepath.Join(dir, name), kind, "directory")
					return
				}
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("error %v", err)
				}
				fact.Error(t, err, dir+"/none/f", "directory "+dir+"/none")
			})
		}
	}
}

func TestWriteFileSweeps(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".ca.key.slipway-ABCDEFGH", ".ca.key.slipway-22222222", // leftovers
		".ca.key.slipway-ABC", ".ca.key2.slipway-ABCDEFGH", ".ca.key.swp", "ca.key.slipway-ABCDEFGH",
	} {
		fixture.PutMode(t, filepath.Join(dir, name), "half a k", 0o600)
	}
	if _, err := onlyFiles().WriteSecret(filepath.Join(dir, "ca.key"), []byte("key")); err != nil {
		t.Fatal(err)
	}
	want := []string{".ca.key.slipway-ABC", ".ca.key.swp", ".ca.key2.slipway-ABCDEFGH", "ca.key", "ca.key.slipway-ABCDEFGH"}
	if diff := cmp.Diff(want, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// During the writes nobody ever sees half a file or a mode wider than 0600, whatever the umask.
func TestWriteSecretObserved(t *testing.T) {
	setUmask(t, 0)
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.key")
	r := onlyFiles()
	contents := [][]byte{bytes.Repeat([]byte("a"), 50_000), bytes.Repeat([]byte("b"), 70_000)}
	if _, err := r.WriteSecret(path, contents[0]); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for j := range 50 {
				if _, err := r.WriteSecret(path, contents[(i+j)%2]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { writers.Wait(); close(done) }()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		for _, name := range fixture.Entries(t, dir) {
			info, err := os.Lstat(filepath.Join(dir, name))
			if err == nil && info.Mode()&^0o600 != 0 {
				t.Fatalf("%s has mode %v", name, info.Mode())
			}
		}
		got, err := os.ReadFile(path)
		if err != nil || (!bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1])) {
			t.Fatalf("read %d bytes, error %v", len(got), err)
		}
	}
	if diff := cmp.Diff([]string{"ca.key"}, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	strange(t, dir)
	r := onlyFiles()
	for _, name := range []string{"link", "dangling", "fifo", "directory", "nothing"} {
		if err := r.Remove(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"sock", "victim"}, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	err := r.Remove(dir)
	if !errors.Is(err, unix.ENOTEMPTY) || !strings.Contains(err.Error(), "remove "+dir+": "+unix.ENOTEMPTY.Error()) {
		t.Errorf("error %v", err)
	}
}

func TestNewAt(t *testing.T) {
	root := t.TempDir()
	r := onlyFilesAt(root)
	if err := r.EnsureDir("/etc/kubernetes", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteFile("/etc/kubernetes/f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/f")); string(got) != "x" {
		t.Errorf("read %q, error %v", got, err)
	}
	if got, err := r.ReadFile("/etc/kubernetes/f"); string(got) != "x" {
		t.Errorf("read %q, error %v", got, err)
	}
	if entries, err := r.ReadDir("/etc/kubernetes"); len(entries) != 1 || err != nil {
		t.Errorf("entries %v, error %v", entries, err)
	}
	if _, err := r.ReadFile("/etc/passwd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file outside: error %v", err)
	}
}

func TestRemedy(t *testing.T) {
	for err, remedy := range map[error]string{
		unix.ENOSPC: "free some",
		unix.EDQUOT: "free some",
		unix.EROFS:  "writable",
		unix.EIO:    "dmesg",
		unix.ELOOP:  "",
	} {
		got := host.Explain("write", "/f", &fs.PathError{Op: "open", Path: "/f", Err: err})
		said, found := strings.CutPrefix(got.Error(), "write /f: "+err.Error())
		if !found || !strings.Contains(said, remedy) || (said == "") != (remedy == "") || !errors.Is(got, err) {
			t.Errorf("error %v, want the remedy %q", got, remedy)
		}
	}
}
