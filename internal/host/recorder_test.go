// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// agreeable is a host whose systemd and runtime carry out every order, unless refuse is set.
type agreeable struct {
	Host
	refuse error
}

func (a agreeable) Unit(context.Context, string) (UnitState, error) { return UnitState{}, nil }
func (a agreeable) StopUnit(context.Context, string) error          { return a.refuse }
func (a agreeable) StartUnit(context.Context, string) error         { return a.refuse }
func (a agreeable) RestartUnit(context.Context, string) error       { return a.refuse }
func (a agreeable) EnableUnit(context.Context, string) error        { return a.refuse }
func (a agreeable) ReloadUnits(context.Context) error               { return a.refuse }
func (a agreeable) PullImage(_ context.Context, _, _ string) error  { return a.refuse }

// TestRecorderSaysWhatThePlanSaid compares the two.
func TestRecorderSaysWhatThePlanSaid(t *testing.T) {
	dir := prepare(t)
	base := agreeable{Host: New()}
	planned, plan := records()
	if err := script(NewOverlay(base, plan), dir); err != nil {
		t.Fatal(err)
	}
	did, record := records()
	r := NewRecorder(base, record)
	if err := script(r, dir); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 { // the plan's files belong to root
		for _, list := range []*[]Action{planned, did} {
			*list = slices.DeleteFunc(*list, func(a Action) bool { return a.Verb == Chown })
		}
	}
	if diff := cmp.Diff(*planned, *did); diff != "" {
		t.Errorf("done (-planned +done):\n%s", diff)
	}
	*did = nil
	if err := script(r, dir); err != nil {
		t.Fatal(err)
	}
	*did = slices.DeleteFunc(*did, func(a Action) bool { return a.Verb == Chown }) // only by root
	// The script writes one file twice, and gives systemd its orders again.
	if diff := cmp.Diff([]string{"write", "write", "chmod", "stop unit"}, verbs(*did)); diff != "" {
		t.Errorf("the second time (-want +got):\n%s", diff)
	}
}

func verbs(list []Action) []string {
	var out []string
	for _, a := range list {
		out = append(out, string(a.Verb))
	}
	return out
}

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

// TestRecorderOfFailures: what was not done is not recorded.
func TestRecorderOfFailures(t *testing.T) {
	ctx := t.Context()
	list, record := records()
	r := NewRecorder(agreeable{Host: New(), refuse: errors.New("no")}, record)
	_, err := r.WriteFile(t.TempDir()+"/none/f", nil, 0o644)
	for _, err := range []error{err, r.StartUnit(ctx, "a"), r.StopUnit(ctx, "a"), r.RestartUnit(ctx, "a"), r.EnableUnit(ctx, "a"),
		r.ReloadUnits(ctx), r.PullImage(ctx, "", "i"), r.EnsureDir("/dev/null", 0o755), r.Give("/nowhere", own, 0o600), second(r.GiveTree("/nowhere", own)),
		second(r.WriteOwned("/nowhere/f", nil, 0o600, own))} {
		if err == nil {
			t.Error("no error")
		}
	}
	if err := r.Remove("/nowhere"); err != nil {
		t.Error(err)
	}
	if len(*list) > 0 {
		t.Errorf("recorded %v", *list)
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
