// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestHasFile(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, dir+"/f", "text", 0o644)
	tests := map[string]struct {
		file host.SetFile
		want bool
	}{
		"same":       {fixture.Member(dir+"/f", "text", 0o644), true},
		"other mode": {fixture.Member(dir+"/f", "text", 0o755), false},
		"other text": {fixture.Member(dir+"/f", "tent", 0o644), false},
		"other size": {fixture.Member(dir+"/f", "texts", 0o644), false},
		"missing":    {fixture.Member(dir+"/g", "text", 0o644), false},
		"nowhere":    {fixture.Member(dir+"/none/g", "text", 0o644), false},
	}
	for name, test := range tests {
		for label, h := range map[string]host.Host{"real": linux.New(), "plan": NewOverlay(linux.New(), func(host.Action) {})} {
			if got, err := h.HasFile(test.file); got != test.want || err != nil {
				t.Errorf("%s, %s: %v, error %v", label, name, got, err)
			}
		}
	}
}

// A plan knows the files it writes, in whatever way, and the files it removes.
func TestHasFilePlanned(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, dir+"/gone", "text", 0o644)
	o := NewOverlay(linux.New(), func(host.Action) {})
	_, written := o.WriteFile(dir+"/written", []byte("text"), 0o644)
	_, moved := o.WriteFile(dir+"/from", []byte("text"), 0o644)
	moved = errors.Join(moved, second(o.Rename(dir+"/from", dir+"/moved")))
	if err := errors.Join(written, moved, o.Remove(dir+"/gone"), o.EnsureDir(dir+"/d", 0o755),
		o.WriteSet([]host.SetFile{fixture.Member(dir+"/set", "text", 0o755)}, nil)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file host.SetFile
		want bool
	}{
		"of the set":                    {fixture.Member(dir+"/set", "text", 0o755), true},
		"of the set, unclean":           {fixture.Member(dir+"/./set", "text", 0o755), true},
		"of the set, changed":           {fixture.Member(dir+"/set", "tent", 0o755), false},
		"written":                       {fixture.Member(dir+"/written", "text", 0o644), true},
		"written, other text":           {fixture.Member(dir+"/written", "tent", 0o644), false},
		"written, other mode":           {fixture.Member(dir+"/written", "text", 0o755), false},
		"removed":                       {fixture.Member(dir+"/gone", "text", 0o644), false},
		"moved away":                    {fixture.Member(dir+"/from", "text", 0o644), false},
		"moved":                         {fixture.Member(dir+"/moved", "text", 0o644), true},
		"in a planned, empty directory": {fixture.Member(dir+"/d/f", "text", 0o644), false},
	} {
		if got, err := o.HasFile(test.file); got != test.want || err != nil {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
	}
	var kind *host.KindError
	if has, err := o.HasFile(fixture.Member(dir+"/d", "", 0o755)); has || !errors.As(err, &kind) {
		t.Errorf("a planned directory: %v, error %v", has, err)
	}
	if _, err := o.ReadFile(dir + "/set"); !errors.Is(err, host.ErrNotInPlan) {
		t.Errorf("reading a file of a set: error %v", err)
	}
}

// TestDescribe: a file is described the same way as it is, and as a plan would write it.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, dir+"/f", "text", 0o644)
	r := linux.New()
	if got, err := host.Describe(r, dir+"/f"); err != nil || got != host.Summary(fixture.Member(dir+"/f", "text", 0o755)) {
		t.Errorf("%q, error %v", got, err)
	}
	if got, err := host.Describe(r, dir+"/none"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %q, error %v", got, err)
	}
	if got, err := host.Describe(r, dir); err == nil {
		t.Errorf("a directory: %q", got)
	}
}
