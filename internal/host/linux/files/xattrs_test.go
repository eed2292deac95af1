// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnchanged: a file is Slipway's until somebody edits it, in place or by replacing it.
func TestUnchanged(t *testing.T) {
	h := onlyFiles()
	path := filepath.Join(t.TempDir(), "file")
	check := func(when string, want bool) {
		t.Helper()
		if got := h.Unchanged(path); got != want {
			t.Errorf("%s: Unchanged is %v, want %v", when, got, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if _, err := h.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check("before there is one", false)
	write("ours")
	if !h.CreatedBySlipway(path) {
		t.Skip("this file system, or this user, keeps no notes")
	}
	check("as written", true)
	if err := os.WriteFile(path, []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("edited in place", false)
	write("ours again")
	check("written again", true)
	if err := os.WriteFile(path+".new", []byte("ours again"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	check("replaced", false)
	write("ours over a file of somebody else's")
	check("written over a file of somebody else's", false)
}
