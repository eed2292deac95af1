// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"testing"
)

func TestHasFile(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "text", 0o644)
	tests := map[string]struct {
		file SetFile
		want bool
	}{
		"same":       {member(dir+"/f", "text", 0o644), true},
		"other mode": {member(dir+"/f", "text", 0o755), false},
		"other text": {member(dir+"/f", "tent", 0o644), false},
		"other size": {member(dir+"/f", "texts", 0o644), false},
		"missing":    {member(dir+"/g", "text", 0o644), false},
		"nowhere":    {member(dir+"/none/g", "text", 0o644), false},
	}
	for name, test := range tests {
		for label, h := range map[string]Host{"real": New(), "plan": NewOverlay(New(), func(Action) {})} {
			if got, err := h.HasFile(test.file); got != test.want || err != nil {
				t.Errorf("%s, %s: %v, error %v", label, name, got, err)
			}
		}
	}
}

// A plan knows of the files that it writes, in whatever way, and of those that it removes.
func TestHasFilePlanned(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/gone", "text", 0o644)
	o := NewOverlay(New(), func(Action) {})
	_, written := o.WriteFile(dir+"/written", []byte("text"), 0o644)
	_, moved := o.WriteFile(dir+"/from", []byte("text"), 0o644)
	moved = errors.Join(moved, second(o.Rename(dir+"/from", dir+"/moved")))
	if err := errors.Join(written, moved, o.Remove(dir+"/gone"), o.EnsureDir(dir+"/d", 0o755),
		o.WriteSet([]SetFile{member(dir+"/set", "text", 0o755)}, nil)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file SetFile
		want bool
	}{
		"of the set":                    {member(dir+"/set", "text", 0o755), true},
		"of the set, unclean":           {member(dir+"/./set", "text", 0o755), true},
		"of the set, changed":           {member(dir+"/set", "tent", 0o755), false},
		"written":                       {member(dir+"/written", "text", 0o644), true},
		"written, other text":           {member(dir+"/written", "tent", 0o644), false},
		"written, other mode":           {member(dir+"/written", "text", 0o755), false},
		"removed":                       {member(dir+"/gone", "text", 0o644), false},
		"moved away":                    {member(dir+"/from", "text", 0o644), false},
		"moved":                         {member(dir+"/moved", "text", 0o644), true},
		"in a planned, empty directory": {member(dir+"/d/f", "text", 0o644), false},
	} {
		if got, err := o.HasFile(test.file); got != test.want || err != nil {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
	}
	var kind *KindError
	if has, err := o.HasFile(member(dir+"/d", "", 0o755)); has || !errors.As(err, &kind) {
		t.Errorf("a planned directory: %v, error %v", has, err)
	}
	if _, err := o.ReadFile(dir + "/set"); !errors.Is(err, ErrNotInPlan) {
		t.Errorf("reading a file of a set: error %v", err)
	}
}

// TestDescribe: a file as it is, and as a plan would write it, are described in the same way.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f", "text", 0o644)
	r := New()
	if got, err := Describe(r, dir+"/f"); err != nil || got != describe(member(dir+"/f", "text", 0o755)) {
		t.Errorf("%q, error %v", got, err)
	}
	if got, err := Describe(r, dir+"/none"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %q, error %v", got, err)
	}
	if got, err := Describe(r, dir); err == nil {
		t.Errorf("a directory: %q", got)
	}
}
