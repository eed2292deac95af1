// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestRecorderOfMuch: the plan of streams, trees and moves matches the record afterwards.
func TestRecorderOfMuch(t *testing.T) {
	fill := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	dir := prepare(t)
	script := func(h host.Host) {
		_, err := h.Rename(dir+"/etc/pki", dir+"/etc/pki.before")
		_, again := h.Rename(dir+"/etc/pki", dir+"/etc/pki.before")
		err = errors.Join(err, again, h.WriteStream(dir+"/etc/s", fill("xxx")), h.WriteStream(dir+"/etc/s", fill("")),
			h.WriteTree(dir+"/etc/pki", func(at string) error { return os.WriteFile(at+"/f", nil, 0o600) }))
		for _, failure := range []error{h.WriteStream(dir+"/none/s", fill("")), h.WriteTree(dir+"/etc/pki", nil), second(h.Rename(dir+"/none", dir+"/x"))} {
			if failure == nil {
				t.Error("no error")
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []host.Action{
		{Verb: host.Rename, Path: dir + "/etc/pki", NewPath: dir + "/etc/pki.before"},
		{Verb: host.Write, Path: dir + "/etc/s", Mode: 0o600, Secret: true, Created: true},
		{Verb: host.Write, Path: dir + "/etc/s", Mode: 0o600, Secret: true},
		{Verb: host.Mkdir, Path: dir + "/etc/pki", Mode: 0o700},
	}
	planned, add := fixture.Records()
	script(NewOverlay(linux.New(), add))
	did, record := fixture.Records()
	script(NewRecorder(linux.New(), record))
	for what, list := range map[string]*[]host.Action{"planned": planned, "done": did} {
		if diff := cmp.Diff(want, *list); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if got := want[0].String(); got != "rename "+dir+"/etc/pki to "+dir+"/etc/pki.before" {
		t.Error(got)
	}
}

func TestRecorderDirs(t *testing.T) {
	list, record := fixture.Records()
	makesDirs(t, NewRecorder(linux.New(), record), list)
}

// makesDirs makes the same directories twice, and checks that h records each change once.
func makesDirs(t *testing.T, h host.Host, list *[]host.Action) {
	t.Helper()
	dir := prepare(t)
	for range 2 {
		if err := errors.Join(h.EnsureDir(dir+"/a/b", 0o700), h.EnsureDir(dir+"/etc/pki", 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	want := []host.Action{
		{Verb: host.Mkdir, Path: dir + "/a", Mode: 0o755},
		{Verb: host.Mkdir, Path: dir + "/a/b", Mode: 0o700},
		{Verb: host.Chmod, Path: dir + "/etc/pki", Mode: 0o700},
	}
	if diff := cmp.Diff(want, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestRecorderSideBySide: a directory made by two goroutines at once is recorded once.
func TestRecorderSideBySide(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	count := 0
	r := NewRecorder(linux.New(), func(host.Action) { mu.Lock(); defer mu.Unlock(); count++ })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := r.EnsureDir(dir+"/a/b/c", 0o700); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if count != 3 {
		t.Errorf("%d actions", count)
	}
}
