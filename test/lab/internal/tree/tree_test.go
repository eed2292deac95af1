// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLink(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	write(t, filepath.Join(from, "blobs", "one"), "blob")
	write(t, filepath.Join(from, "meta.db"), "database")
	if err := os.Symlink("one", filepath.Join(from, "blobs", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(from, "blobs"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := Link(from, to); err != nil {
		t.Fatal(err)
	}
	for name, shared := range map[string]bool{"blobs/one": true, "meta.db": false} {
		a, errA := os.Stat(filepath.Join(from, name))
		b, errB := os.Stat(filepath.Join(to, name))
		if errA != nil || errB != nil || os.SameFile(a, b) != shared {
			t.Errorf("%s: shared is %v, want %v (%v, %v)", name, !shared, shared, errA, errB)
		}
	}
	if link, err := os.Readlink(filepath.Join(to, "blobs", "link")); link != "one" {
		t.Errorf("link to %q, %v", link, err)
	}
	if info, err := os.Stat(filepath.Join(to, "blobs")); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("a directory's mode is lost: %v, %v", info, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
