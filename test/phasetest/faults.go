// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// Refusal refuses one order to a host.
type Refusal struct {
	mu    sync.Mutex
	Count int
	At    int    // which order, from 1; or
	Named string // the first order of this name
	What  string // the refused order
	hang  bool   // the order hangs until its time is over
	More  string // further orders to refuse
}

func (f *Refusal) On(root string) *LastingHost {
	h := NewLastingHost(root)
	h.Before = f.before
	return h
}

var diskFaults = []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}

// refused matches the orders that can be refused. A run can do without any other.
var refused = regexp.MustCompile(`^((write|mkdir|remove|create directory|rename) /|(start|stop|restart|pull) |reload$)`)

// before returns an error if this is the order to refuse.
func (f *Refusal) before(ctx context.Context, order string) error {
	if !refused.MatchString(order) && (f.More == "" || !regexp.MustCompile(f.More).MatchString(order)) {
		return nil
	}
	f.mu.Lock()
	if f.Count++; f.What != "" || f.Count != f.At && (f.Named == "" || f.Named != order && f.Named+" "+theKubelet != order) {
		f.mu.Unlock()
		return nil
	}
	f.What = order
	err := diskFaults[f.Count%len(diskFaults)]
	f.mu.Unlock()
	if f.hang {
		<-ctx.Done()
		err = ctx.Err()
	}
	return asOf(order, err)
}

// asOf wraps an error like the part of the host that gets the order.
func asOf(order string, err error) error {
	verb, about, _ := strings.Cut(order, " ")
	if at := strings.Index(order, " /"); at > 0 {
		return &fs.PathError{Op: verb, Path: order[at+1:], Err: err}
	}
	if verb == "pull" || strings.HasPrefix(about, "container ") {
		return &host.RuntimeError{Socket: "unix:///run/containerd/containerd.sock", Op: order, Reason: err.Error(), Err: err}
	}
	return fault.WithRemedy(fmt.Errorf("%s: systemd refused: %w", order, err), "see `systemctl status "+about+"`")
}

func RefuseEach(t *testing.T, crashes []Scenario) {
	for _, c := range crashes {
		t.Run(c.Name, func(t *testing.T) {
			want := NewScene(t, c)
			defer want.Close()
			counting := &Refusal{}
			if said, err := want.On(t.Context(), counting.On(want.Root)); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			var group errgroup.Group
			group.SetLimit(8)
			for _, i := range tier.Sample(t, 6, counting.Count) {
				group.Go(func() error { refusedAt(t, want, i+1); return nil })
			}
			_ = group.Wait()
			t.Logf("a run gives %d orders to the host", counting.Count)
		})
	}
}

func refusedAt(t *testing.T, want *Scene, at int) {
	s := NewScene(t, want.Scenario)
	defer s.Close()
	f := &Refusal{At: at}
	said, err := s.On(t.Context(), f.On(s.Root))
	pulled := strings.HasPrefix(f.What, "pull ") // pulls are retried
	if f.What == "" || pulled && err == nil {
		return
	}
	cause := diskFaults[at%len(diskFaults)]
	if err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("%s, refused with %q: the run ended with %v\n%s", f.What, cause, err, said)
	}
	verb, path, _ := strings.Cut(f.What, " ")
	if strings.HasPrefix(path, "/") && err != nil && !strings.Contains(err.Error(), path) {
		t.Errorf("%s of %s, refused with %q: the error does not name the file: %v", verb, path, cause, err)
	}
	NoPartialFile(t, f.What, s.Root)
	s.FinishesAs(t, want, f.What+", refused")
}

// FinishesAs runs once more, and compares the result with an undisturbed run.
func (s *Scene) FinishesAs(t *testing.T, want *Scene, where string) {
	if said, err := s.Again(t.Context()); err != nil {
		t.Errorf("%s: the second run failed: %v\n%s", where, err, said)
		return
	}
	if err := intact.Check(s.Root); err != nil {
		t.Errorf("%s: the second run left %v", where, err)
	}
	if diff := cmp.Diff(want.left(t), s.left(t)); diff != "" {
		t.Errorf("%s: the second run left (-undisturbed +this):\n%s", where, diff)
	}
}

func NoPartialFile(t *testing.T, where, root string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".slipway-") {
			t.Errorf("%s: %s is left", where, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

func HangEach(t *testing.T, crashes []Scenario) {
	for _, i := range tier.Sample(t, 3, len(crashes)) {
		want := NewScene(t, crashes[i])
		defer want.Close()
		if said, err := want.Again(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		var group errgroup.Group
		for _, order := range []string{"stop", "reload", "start", "restart"} {
			group.Go(func() error { hungAt(t, want, order); return nil })
		}
		_ = group.Wait()
	}
}

func hungAt(t *testing.T, want *Scene, order string) {
	s := NewScene(t, want.Scenario)
	defer s.Close()
	f := &Refusal{Named: order, hang: true}
	h := f.On(s.Root)
	h.Limit = 2 * time.Second
	started := time.Now()
	_, err := s.On(t.Context(), h)
	if f.What == "" {
		return // this workflow doesn't give this order
	}
	if took := time.Since(started); err == nil || took > 2*time.Minute || !strings.Contains(err.Error(), order) {
		t.Errorf("%s hangs: the run ended after %s with %v", order, took, err)
	}
	s.FinishesAs(t, want, order+" hung")
}
