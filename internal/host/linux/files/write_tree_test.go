// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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

func TestWriteTree(t *testing.T) {
	setUmask(t, 0o277)
	dir := t.TempDir()
	path := filepath.Join(dir, "member")
	for _, name := range []string{".member.slipway-ABCDEFGH", ".other.slipway-ABCDEFGH"} { // leftovers of killed runs
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, name, "snap"), 0o700)); err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
	}
	broken := errors.New("the snapshot is damaged")
	for _, fails := range []error{broken, nil} {
		err := onlyFiles().WriteTree(path, func(at string) error {
			if left := fixture.Entries(t, at); len(left) > 0 {
				t.Errorf("it holds %v already", left)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is there too early: %v", err)
			}
			return errors.Join(os.Mkdir(at+"/snap", 0o700), os.Symlink("/nowhere", at+"/link"), os.WriteFile(at+"/snap/db", []byte("db"), 0o600), fails)
		})
		if !errors.Is(err, fails) || fails != nil && !strings.HasSuffix(err.Error(), path+": "+broken.Error()) {
			t.Errorf("error %v", err)
		}
		if _, err := os.Lstat(path); (err == nil) != (fails == nil) {
			t.Errorf("afterwards: %v", err)
		}
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o700 || os.Getuid() == 0 && !onlyFiles().CreatedBySlipway(path) {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := os.ReadFile(path + "/snap/db"); string(got) != "db" {
		t.Errorf("%q, %v", got, err)
	}
	if diff := cmp.Diff([]string{".other.slipway-ABCDEFGH", "member"}, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	err = onlyFiles().WriteTree(path, func(string) error { t.Error("it was filled again"); return nil })
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second time: %v", err)
	}
	fact.Error(t, err, path, "move away")
}

func TestRename(t *testing.T) {
	for label, make := range map[string]func(host.Reader) host.Host{
		"real":    func(host.Reader) host.Host { return onlyFiles() },
		"overlay": func(r host.Reader) host.Host { return plan.NewOverlay(r, func(host.Action) {}) },
	} {
		t.Run(label, func(t *testing.T) {
			dir := t.TempDir()
			h := make(onlyFiles())
			for _, name := range []string{"a", "b"} {
				if err := os.MkdirAll(filepath.Join(dir, name, "snap"), 0o700); err != nil {
					t.Fatal(err)
				}
				fixture.PutMode(t, filepath.Join(dir, name, "snap", "db"), name, 0o600)
			}
			if _, err := h.WriteFile(dir+"/a/snap/extra", []byte("extra"), 0o600); err != nil {
				t.Fatal(err)
			}
			if changed, err := h.Rename(dir+"/a", dir+"/b"); changed || !errors.Is(err, fs.ErrExist) {
				t.Errorf("onto another: %v, %v", changed, err)
			} else {
				fact.Error(t, err, "rename "+dir+"/a to "+dir+"/b", "move away")
			}
			if changed, err := h.Rename(dir+"/none", dir+"/nothing"); changed || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of nothing: %v, %v", changed, err)
			}
			if changed, err := h.Rename(dir+"/a", dir+"/none/c"); changed || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("to nowhere: %v, %v", changed, err)
			}
			for _, want := range []bool{true, false} { // the second time, the move is already done
				if changed, err := h.Rename(dir+"/a", dir+"/c"); changed != want || err != nil {
					t.Errorf("%v, %v", changed, err)
				}
			}
			if changed, err := h.Rename(dir+"/b", dir+"/a"); !changed || err != nil {
				t.Errorf("to the place that is free now: %v, %v", changed, err)
			}
			if changed, err := h.Rename(dir+"/c", dir+"/d"); !changed || err != nil {
				t.Errorf("once more: %v, %v", changed, err)
			}
			for path, want := range map[string]string{"/a/snap/db": "b", "/d/snap/db": "a", "/d/snap/extra": "extra"} {
				if got, err := h.ReadFile(dir + path); string(got) != want || err != nil {
					t.Errorf("%s: %q, %v", path, got, err)
				}
				if head, err := host.ReadHead(h, dir+path, 1); string(head) != want[:1] || err != nil {
					t.Errorf("the head of %s: %q, %v", path, head, err)
				}
			}
			for _, gone := range []string{"/b", "/c", "/b/snap/db", "/a/snap/extra"} {
				if _, err := h.Lstat(dir + gone); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", gone, err)
				}
			}
			entries, err := h.ReadDir(dir + "/d/snap")
			if err != nil || len(entries) != 2 || entries[0].Name() != "db" || entries[1].Name() != "extra" {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

func TestRenameMounts(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/etcd", 0o700), os.Mkdir(dir+"/disk", 0o700), os.Mkdir(dir+"/disk/etcd", 0o700)); err != nil {
		t.Fatal(err)
	}
	apart.Bind(t, dir+"/disk/etcd", dir+"/etcd")
	changed, err := onlyFiles().Rename(dir+"/etcd", dir+"/moved")
	if fact.Error(t, err, dir+"/etcd", "mount point"); changed {
		t.Error("moved a mount point")
	}
	if err := unix.Mount("none", dir+"/disk", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir+"/disk", unix.MNT_DETACH) })
	fixture.PutMode(t, dir+"/disk/f", "", 0o600)
	changed, err = onlyFiles().Rename(dir+"/disk/f", dir+"/f")
	if fact.Error(t, err, dir+"/disk/f", "different file"); changed {
		t.Error("moved to another file system")
	}
}
