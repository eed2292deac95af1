// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorderDirs(t *testing.T) {
	list, record := records()
	makesDirs(t, NewRecorder(New(), record), list)
}

// makesDirs makes the same directories twice, and checks that h records each change once.
func makesDirs(t *testing.T, h Host, list *[]Action) {
	t.Helper()
	dir := prepare(t)
	for range 2 {
		if err := errors.Join(h.EnsureDir(dir+"/a/b", 0o700), h.EnsureDir(dir+"/etc/pki", 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	want := []Action{
		{Verb: Mkdir, Path: dir + "/a", Mode: 0o755},
		{Verb: Mkdir, Path: dir + "/a/b", Mode: 0o700},
		{Verb: Chmod, Path: dir + "/etc/pki", Mode: 0o700},
	}
	if diff := cmp.Diff(want, *list); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestRecorderSideBySide: a directory that two goroutines make at once is recorded once.
func TestRecorderSideBySide(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	count := 0
	r := NewRecorder(New(), func(Action) { mu.Lock(); defer mu.Unlock(); count++ })
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
