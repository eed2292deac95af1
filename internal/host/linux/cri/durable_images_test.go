// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func runtimesWithNotes(t *testing.T) (r *Runtimes, notes string) {
	root := t.TempDir()
	r = &Runtimes{Notes: files.At(root)}
	t.Cleanup(r.Close)
	return r, filepath.Join(root, host.FetchNotes)
}

// notesIn are the images of each note.
func notesIn(t *testing.T, dir string) (images [][]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		var f fetch
		if err := json.Unmarshal([]byte(fixture.Get(t, dir, e.Name())), &f); err != nil {
			t.Error(err)
		}
		images = append(images, f.Images)
	}
	return images
}

// TestFetchIsNoted: a note is on disk while images are fetched, and goes only once they're on disk, too.
func TestFetchIsNoted(t *testing.T) {
	r, notes := runtimesWithNotes(t)
	f := &fakeCRI{dir: memory}
	socket := f.serve(t)
	file := filepath.Join(t.TempDir(), "file")
	fixture.Put(t, filepath.Dir(file), "file", "")
	during := fakeCtr(t, flagsOf2, "/bin/cat "+notes+`/* >>"$notes"; /bin/cat >/dev/null; exec /bin/cat "$notes.fails"`)
	fetches := map[string]func(context.Context) error{
		"pull": func(ctx context.Context) error { return r.PullImage(ctx, socket, "a") },
		"import": func(ctx context.Context) error {
			return r.ImportImages(ctx, socket, []string{"a", "b"}, text("archive"))
		},
	}
	if err := fetches["import"](t.Context()); err == nil || len(notesIn(t, notes)) > 0 {
		t.Errorf("a failed import: error %v, notes of %q", err, notesIn(t, notes))
	}
	fact.In(t, during(), `"images":["a","b"]`, `"socket":"`+socket+`"`)
	fakeCtr(t, flagsOf2, "/bin/cat >/dev/null")
	for name, fetch := range fetches {
		f.dir = memory
		if err := fetch(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Dir(notes)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the directory of notes stays (%v), with notes of %q", name, err, notesIn(t, notes))
		}
		f.dir = "/none/images" // a proxy snapshotter's
		if err := fetch(t.Context()); err != nil || len(notesIn(t, notes)) > 0 {
			t.Errorf("%s into a directory that doesn't exist: error %v, notes of %q", name, err, notesIn(t, notes))
		}
		f.dir = filepath.Join(file, "images")
		if err := fetch(t.Context()); len(notesIn(t, notes)) != 1 {
			t.Errorf("%s: the images aren't on disk, and there are notes of %q", name, notesIn(t, notes))
		} else {
			fact.Error(t, err, f.dir)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := fetch(ended); err == nil || len(notesIn(t, notes)) != 2 {
			t.Errorf("%s, interrupted: error %v, notes of %q", name, err, notesIn(t, notes))
		}
		f.dir = memory
		if err := r.RepairInterruptedFetches(t.Context(), socket); err != nil || len(notesIn(t, notes)) > 0 {
			t.Errorf("%s: error %v, notes of %q", name, err, notesIn(t, notes))
		}
	}
	if f.removed != nil {
		t.Errorf("no power cut, and these were removed: %q", f.removed)
	}
}

// TestSettleImages: images that were being fetched in an earlier boot go, with the leases of their layers. Others stay.
func TestSettleImages(t *testing.T) {
	r, notes := runtimesWithNotes(t)
	f := &fakeCRI{dir: memory, status: &cri.StatusResponse{}}
	socket := f.serve(t)
	ran := fixture.FakeProgram(t, "ctr", `echo "$5 $6 $7 $8 $9" >>"$notes"; if [ "$6" = list ]; then /bin/cat <<END
ID              CREATED AT                LABELS
1234-abcd       2001-11-26T16:00:00+01:00 containerd.io/gc.expire=2001-11-27T15:00:00Z
5678-abcd       2001-11-26T16:00:01+01:00 containerd.io/gc.expire=2001-11-27T15:00:01Z,other=x
sandbox         2001-11-26T16:00:00+01:00 -
END
fi`)
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	for name, note := range map[string]fetch{
		"cut": {"earlier", socket, []string{"a", "b"}}, "killed": {boot, socket, []string{"c"}}, "other": {"earlier", "/run/other.sock", []string{"d"}},
	} {
		data, err := json.Marshal(note)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, notes, name+".json", string(data))
	}
	fixture.Put(t, notes, host.TempName("x"), "{")
	for range 2 {
		if err := r.RepairInterruptedFetches(t.Context(), "unix://"+socket); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b"}, f.removed); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
		if want := "leases list   \nleases delete --sync 1234-abcd 5678-abcd\n"; ran() != want {
			t.Errorf("ctr ran with %q, want %q", ran(), want)
		}
	}
	for _, name := range []string{"cut.json", "killed.json"} {
		if _, err := os.Stat(filepath.Join(notes, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the note %s stays (%v)", name, err)
		}
	}
	fixture.Get(t, notes, "other.json")
	fixture.Put(t, notes, "damaged.json", "")
	fact.Error(t, r.RepairInterruptedFetches(t.Context(), socket), "damaged.json")
}

// TestInterruptedLeases: only fetches of an earlier boot lose their layers.
func TestInterruptedLeases(t *testing.T) {
	booted := time.Date(2026, 11, 26, 15, 0, 0, 0, time.UTC)
	got := interruptedLeases(`ID      CREATED AT                LABELS
earlier 2026-11-26T15:59:59+01:00 containerd.io/gc.expire=2026-11-27T14:59:59Z
running 2026-11-26T16:00:01+01:00 containerd.io/gc.expire=2026-11-27T15:00:01Z
future  2027-01-01T00:00:00Z      containerd.io/gc.expire=2027-01-02T00:00:00Z,other=x
sandbox 2026-11-26T15:59:59+01:00 -
`, booted, booted.Add(time.Minute))
	if diff := cmp.Diff([]string{"earlier", "future"}, got); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
}

// TestSettleImagesFails: the note stays until its images are gone.
func TestSettleImagesFails(t *testing.T) {
	r, notes := runtimesWithNotes(t)
	f := &fakeCRI{dir: memory, status: &cri.StatusResponse{}}
	socket := f.serve(t)
	fixture.FakeProgram(t, "ctr", "echo /run/x.sock: denied >&2; exit 1")
	fixture.Put(t, notes, "cut.json", `{"boot":"earlier","socket":"`+socket+`","images":["a"]}`)
	fact.Error(t, r.RepairInterruptedFetches(t.Context(), socket), "ctr", "/run/x.sock")
	if diff := cmp.Diff([][]string{{"a"}}, notesIn(t, notes)); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestStartOf(t *testing.T) {
	const fields = " S 0 1 1 0 -1 4194560 101 202 0 0 1 2 3 4 20 0 1 0 366431 170090496 3328 0"
	for stat, want := range map[string]time.Duration{
		"1 (systemd)" + fields:      3664310 * time.Millisecond,
		"1 (a) S 0 (init)" + fields: 3664310 * time.Millisecond,
		"1 (systemd) S 0":           0,
		"":                          0,
	} {
		if got, err := startOf(stat); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v", stat, got, err)
		}
	}
	if boot, err := bootTime(); err != nil || boot.IsZero() || boot.After(time.Now()) {
		t.Errorf("%v, %v", boot, err)
	}
}
