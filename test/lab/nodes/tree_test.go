// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCopyTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "from", "sub", "secret"), "new")
	write(t, filepath.Join(dir, "to", "sub", "secret"), "a longer old one")
	if err := os.Chmod(filepath.Join(dir, "from", "sub", "secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/elsewhere", filepath.Join(dir, "from", "link")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over existing files
		source, from, err := openPlace(filepath.Join(dir, "from"), os.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		target, to, err := openPlace(filepath.Join(dir, "to"), os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		if err := copyTree(source, from, target, to); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "to", "sub", "secret")
	info, err := os.Stat(secret)
	if data, _ := os.ReadFile(secret); err != nil || string(data) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("got %q, %v, %v", data, info, err)
	}
	if link, err := os.Readlink(filepath.Join(dir, "to", "link")); link != "/elsewhere" {
		t.Errorf("link to %q, %v", link, err)
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
