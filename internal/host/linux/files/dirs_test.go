// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
)

func TestEnsureDir(t *testing.T) {
	tests := map[string]struct {
		before, mode, want fs.FileMode // before 0: there is none
	}{
		"new":               {0, 0o700, 0o700},
		"new, wide":         {0, 0o755, 0o755},
		"same":              {0o755, 0o755, 0o755},
		"narrower is kept":  {0o700, 0o755, 0o700},
		"wider is narrowed": {0o755, 0o700, 0o700},
		"partly wider":      {0o770, 0o755, 0o750},
		"shared is kept":    {0o777 | fs.ModeSticky, 0o755, 0o777 | fs.ModeSticky},
	}
	for name, test := range tests {
		for _, mask := range []int{0, 0o077, 0o277} {
			t.Run(fmt.Sprintf("%s, umask %03o", name, mask), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "d")
				if test.before != 0 {
					if err := os.Mkdir(path, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.Chmod(path, test.before); err != nil {
						t.Fatal(err)
					}
				}
				setUmask(t, mask)
				if err := onlyFiles().EnsureDir(path, test.mode); err != nil {
					t.Fatal(err)
				}
				info, err := os.Lstat(path)
				if err != nil || info.Mode() != test.want|fs.ModeDir {
					t.Errorf("mode %v, error %v; want %v", info.Mode(), err, test.want)
				}
			})
		}
	}
}

func TestEnsureDirParents(t *testing.T) {
	setUmask(t, 0o077)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "way")); err != nil {
		t.Fatal(err)
	}
	// Side by side, as in phases. The path leads through a symlink.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := onlyFiles().EnsureDir(filepath.Join(dir, "way/a/b/c"), 0o700); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for path, want := range map[string]fs.FileMode{"real": 0o700, "real/a": 0o755, "real/a/b": 0o755, "real/a/b/c": 0o700} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestEnsureDirRefuses(t *testing.T) {
	dir := t.TempDir()
	things := strange(t, dir)
	delete(things, "directory")
	things["victim"] = "regular file"
	overlay := plan.NewOverlay(onlyFiles(), func(a host.Action) { t.Errorf("recorded %v", a) })
	for label, h := range map[string]host.Host{"real": onlyFiles(), "overlay": overlay} {
		for name, kind := range things {
			err := h.EnsureDir(filepath.Join(dir, name), 0o755)
			checkKind(t, err, filepath.Join(dir, name), kind, "directory")
			if t.Failed() {
				t.Fatalf("%s: error %v", label, err)
			}
		}
	}
}

// Users move a directory to a bigger disk and leave a symlink in its place.
func TestDirsMayBeSymlinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "disk"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "kubelet")
	if err := os.Symlink("disk", link); err != nil {
		t.Fatal(err)
	}
	var actions []string
	overlay := plan.NewOverlay(onlyFiles(), func(a host.Action) { actions = append(actions, a.String()) })
	for _, h := range []host.Host{overlay, onlyFiles()} { // the overlay comes first because it changes nothing
		if err := h.EnsureDir(link, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteFile(filepath.Join(link, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := h.SetTreeOwner(link, own); err != nil {
			t.Fatal(err)
		}
		if info, err := h.Stat(link); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory is %v, error %v", info.Mode(), err)
		}
	}
	if diff := cmp.Diff([]string{"chmod " + link + " 0700", "write " + link + "/f 0600"}, actions); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is %v now, error %v", info.Mode(), err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "disk/f")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, error %v", info.Mode(), err)
	}
}
