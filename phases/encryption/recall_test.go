// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"fmt"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func (p *plane) recall(t *testing.T, names ...string) error {
	t.Helper()
	err := step.Run(t.Context(), p.Env, Recall(names), step.Options{})
	phasetest.Fatal(t, p.load())
	return err
}

// newKeys rotates n times, and returns the names of all keys.
func (w *world) newKeys(t *testing.T, n int) []string {
	t.Helper()
	w.everywhere(t, Enable)
	for range n {
		phasetest.Fatal(t, w.planes[0].play(&Run{Goal: Rotate, Again: true}))
		w.everywhere(t, Rotate)
	}
	s, err := ReadStatus(t.Context(), w.planes[0].Env)
	phasetest.Fatal(t, err)
	return s.Keys
}

// TestRecall: keys from before a rotation come back, to read with, and go again.
func TestRecall(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		w := newWorld(t, "cp-1")
		first := w.newKeys(t, 1)[0]
		if err := w.planes[0].recall(t, first, "unknown"); err == nil || len(w.planes[0].loaded) > 2 {
			t.Error("an unknown key was recalled")
		}
	})
	for name, test := range map[string]struct {
		rotations int
		recalled  [][]int // on each control plane
		refused   bool
	}{
		"one":                       {1, [][]int{{0}}, false},
		"three":                     {3, [][]int{{0, 1, 2}}, false},
		"the oldest of nine":        {8, [][]int{{0}, {0}}, false},
		"another on another":        {8, [][]int{{0}, {1}}, false},
		"only on one":               {8, [][]int{{1}, nil}, false},
		"too many, and too old":     {8, [][]int{{0, 1, 2}}, true},
		"more than a file may have": {5, [][]int{{0, 1, 2, 3}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []string{"cp-1", "cp-2"}[:len(test.recalled)]...)
			keys := w.newKeys(t, test.rotations)
			for i, p := range w.planes {
				want, names := encryption.Only(w.target(t)), []string(nil)
				for _, k := range test.recalled[i] {
					names = append(names, keys[k])
				}
				if err := p.recall(t, names...); (err != nil) != test.refused {
					t.Fatalf("recall of %v: %v", names, err)
				}
				for _, name := range names {
					if !test.refused {
						want = want.Reading(name)
					}
				}
				if !slices.Equal(p.loaded, want) {
					t.Errorf("%s has loaded %v", p.name, p.loaded)
				}
			}
			if last := len(test.recalled) - 1; !test.refused && slices.Equal(test.recalled[0], test.recalled[last]) { // all can read it
				for _, k := range test.recalled[0] {
					w.values["restored/"+keys[k]] = keys[k]
				}
			}
			w.shared, w.unfit = nil, "" // an upload with the keys, and only what was restored
			w.everywhere(t, Enable)
		})
	}
}

// TestLostValues: a value whose key no API server reads any more is read with the keyring's key, and rewritten. A key that nobody has is
// named.
func TestLostValues(t *testing.T) {
	w := newWorld(t, "cp-1", "cp-2")
	keys := w.newKeys(t, 1)
	w.values["lost/s"] = keys[0]
	w.everywhere(t, Enable)
	w.values["lost/s"] = "gone"
	before := w.planes[0].loaded
	fact.Error(t, w.planes[0].run(Enable), "lost/s", "gone")
	if !slices.Equal(w.planes[0].loaded, before) {
		t.Errorf("it has loaded %v", w.planes[0].loaded)
	}
}

// TestRestored: etcd is restored from before a rotation, or from before the encryption was disabled and enabled once more. The
// retired key doesn't become the target again.
func TestRestored(t *testing.T) {
	for _, goals := range [][]Goal{{Rotate}, {Disable, Enable}, {Rotate, Disable}} {
		t.Run(fmt.Sprint(goals), func(t *testing.T) {
			w := newWorld(t, "cp-1", "cp-2")
			w.everywhere(t, Enable)
			first, earlier := w.target(t), keyringSecret()
			_, err := w.api.Get(t.Context(), earlier)
			phasetest.Fatal(t, err)
			for _, goal := range goals {
				w.everywhere(t, goal)
			}
			target := w.target(t)
			for _, p := range w.planes {
				phasetest.Fatal(t, p.recall(t, first))
			}
			phasetest.Fatal(t, w.api.Ensure(t.Context(), earlier))
			for name := range w.values {
				w.values[name] = first
			}
			w.shared = nil
			if now := w.target(t); now != target {
				t.Errorf("the status has %s instead of %s", now, target)
			}
			last := goals[len(goals)-1]
			if last == Rotate {
				last = Enable
			}
			w.everywhere(t, last)
			if now := w.target(t); now != target || now == first {
				t.Errorf("the target is %s instead of %s", now, target)
			}
			fact.In(t, w.planes[0].Said.String(), keyringFile, target)
		})
	}
}
