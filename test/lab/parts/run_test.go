// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func (b *Builder) need(ctx context.Context, name string, make func() error) error {
	return b.do(ctx, func(ctx context.Context, r *run) error {
		_, err := r.part(ctx, name, "making "+name, func(string) error { return make() })
		return err
	})
}

// Runs that need the same part wait until one of them has made it, and no run waits for a part it doesn't need. Unused parts go
// once all runs have ended.
func TestSideBySide(t *testing.T) {
	b := testBuilder(t)
	nothing := func() error { return nil }
	if err := b.need(t.Context(), "thing-0", nothing); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-100 * time.Hour)
	if err := os.Chtimes(b.path("thing-0"), long, long); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			err := b.need(t.Context(), "thing-1", func() error {
				if made.Add(1) == 1 {
					close(begun)
				}
				<-goOn
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-begun
	if err := b.need(t.Context(), "thing-2", nothing); err != nil {
		t.Error(err)
	}
	if !b.has("thing-0") {
		t.Error("it's swept while others are at work")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := b.need(ctx, "thing-1", nothing); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the wait for a part that another makes: %v", err)
	}
	close(goOn)
	all.Wait()
	if made.Load() != 1 || !b.has("thing-1") {
		t.Errorf("it's made %d times", made.Load())
	}
	if err := b.need(t.Context(), "thing-3", nothing); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(b.path("*"))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(b.path(lockOf + "*"))
	if err != nil {
		t.Fatal(err)
	}
	if b.has("thing-0") || !b.has("thing-2") || len(locks) > 0 {
		t.Errorf("after the last run there are %q", left)
	}
}

// A failed run passes its lock on, and the next one makes the part.
func TestFailedRun(t *testing.T) {
	b := testBuilder(t)
	broken := errors.New("broken")
	if err := b.need(t.Context(), "thing-1", func() error { return broken }); !errors.Is(err, broken) || b.has("thing-1") {
		t.Errorf("got %v", err)
	}
	if err := b.need(t.Context(), "thing-1", func() error { return nil }); err != nil || !b.has("thing-1") {
		t.Errorf("got %v", err)
	}
}

// The parts of this run and of the nodes stay, and so do the current programs of all releases.
func TestKeep(t *testing.T) {
	b := testBuilder(t)
	b.InUse = func() ([]string, error) {
		return []string{b.path("debian-1"), b.path("debian-node-2/root"), "/elsewhere/debian-3"}, nil
	}
	r := &run{Builder: b, used: map[string]bool{"images-4": true}}
	keep, err := r.keep()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"debian-1", "debian-node-2", "images-4"}
	for _, p := range []pick{{"1.37", "kubelet"}, {"1.35", "kubelet"}, {"1.36", "etcd"}, {"1.37", "crictl"}} {
		name, err := b.programPart(p)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	for _, name := range want {
		if !keep[name] {
			t.Errorf("%s doesn't stay", name)
		}
	}
	for name := range keep {
		if kind := kindOf(name); kind == "debian" && name != "debian-1" || kind == "" {
			t.Errorf("%s stays", name)
		}
	}
}

func TestTree(t *testing.T) {
	upper, base := t.TempDir(), t.TempDir()
	for _, path := range []string{upper + "/lib/b/1.so", upper + "/lib/b/2.so", base + "/lib/b/1.so", base + "/lib/a/3.so"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	both := tree{upper, base}
	for path, want := range map[string]string{"lib/b/1.so": upper, "lib/b/2.so": upper, "lib/a/3.so": base, "none": base} {
		if got := both.find(path); got != filepath.Join(want, path) {
			t.Errorf("%s is at %s", path, got)
		}
	}
	if got := both.glob("lib/*/*.so"); !slices.Equal(got, []string{"lib/a/3.so", "lib/b/1.so", "lib/b/2.so"}) {
		t.Errorf("got %q", got)
	}
}
