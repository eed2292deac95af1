// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
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

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// refusal refuses one order to a host.
type refusal struct {
	mu    sync.Mutex
	count int
	at    int    // which order, from 1; or
	named string // the first of this name
	what  string // the order that it was
	hang  bool   // the order hangs until its time is over
	more  string // orders that are refused beside the usual ones
}

// on is a host in a directory that refuses the order.
func (f *refusal) on(root string) *lastingHost {
	h := newLastingHost(root)
	h.Before = f.before
	return h
}

// diskFaults are the errors of a disk on write, in turn.
var diskFaults = []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}

// refused are the orders that can be refused, as they begin. Others are extras, which a run can do without.
var refused = regexp.MustCompile(`^((write|mkdir|remove|create directory|rename) /|(start|stop|restart|pull) |reload$)`)

// before is the error if this is the order to refuse.
func (f *refusal) before(ctx context.Context, order string) error {
	if !refused.MatchString(order) && (f.more == "" || !regexp.MustCompile(f.more).MatchString(order)) {
		return nil
	}
	f.mu.Lock()
	if f.count++; f.what != "" || f.count != f.at && (f.named == "" || f.named != order && f.named+" "+theKubelet != order) {
		f.mu.Unlock()
		return nil
	}
	f.what = order
	err := diskFaults[f.count%len(diskFaults)]
	f.mu.Unlock()
	if f.hang {
		<-ctx.Done()
		err = ctx.Err()
	}
	return asOf(order, err)
}

// asOf is an error as the part of the host returns it that gets the order.
func asOf(order string, err error) error {
	verb, about, _ := strings.Cut(order, " ")
	if at := strings.Index(order, " /"); at > 0 {
		return &fs.PathError{Op: verb, Path: order[at+1:], Err: err}
	}
	if verb == "pull" || strings.HasPrefix(about, "container ") {
		return &host.RuntimeError{Socket: "unix:///run/containerd/containerd.sock", Op: order, Reason: err.Error(), Err: err}
	}
	return &host.UnitError{Unit: about, Job: verb, Result: host.ResultRefused, Err: err}
}

// TestHostFaults refuses each order to the host once. The run reports that and leaves no partial file. The same run
// again finishes as if nothing had happened.
func TestHostFaults(t *testing.T) {
	refuseEach(t, crashes)
}

func refuseEach(t *testing.T, crashes []crashing) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			want := newScene(t, c)
			defer want.close()
			counting := &refusal{}
			if said, err := want.on(t.Context(), counting.on(want.root)); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			var group errgroup.Group
			group.SetLimit(8)
			for _, i := range tier.Sample(t, 6, counting.count) {
				group.Go(func() error { refusedAt(t, want, i+1); return nil })
			}
			_ = group.Wait()
			t.Logf("a run gives %d orders to the host", counting.count)
		})
	}
}

func refusedAt(t *testing.T, want *scene, at int) {
	s := newScene(t, want.crashing)
	defer s.close()
	f := &refusal{at: at}
	said, err := s.on(t.Context(), f.on(s.root))
	pulled := strings.HasPrefix(f.what, "pull ") // pulls are retried
	if f.what == "" || pulled && err == nil {
		return
	}
	cause := diskFaults[at%len(diskFaults)]
	if err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("%s, refused with %q: the run ended with %v\n%s", f.what, cause, err, said)
	}
	verb, path, _ := strings.Cut(f.what, " ")
	if strings.HasPrefix(path, "/") && err != nil && !strings.Contains(err.Error(), path) {
		t.Errorf("%s of %s, refused with %q: the error does not name the file: %v", verb, path, cause, err)
	}
	noPartialFile(t, f.what, s.root)
	s.finishesAs(t, want, f.what+", refused")
}

// finishesAs runs once more, and compares the result with an undisturbed run.
func (s *scene) finishesAs(t *testing.T, want *scene, where string) {
	if said, err := s.again(t.Context()); err != nil {
		t.Errorf("%s: the second run failed: %v\n%s", where, err, said)
		return
	}
	if err := intact.Check(s.root); err != nil {
		t.Errorf("%s: the second run left %v", where, err)
	}
	if diff := cmp.Diff(want.left(t), s.left(t)); diff != "" {
		t.Errorf("%s: the second run left (-undisturbed +this):\n%s", where, diff)
	}
}

func noPartialFile(t *testing.T, where, root string) {
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

// TestHungUnits: a run stops waiting for a systemd that does not carry out an order, within the configured time.
func TestHungUnits(t *testing.T) {
	hangEach(t, crashes)
}

func hangEach(t *testing.T, crashes []crashing) {
	for _, i := range tier.Sample(t, 3, len(crashes)) {
		want := newScene(t, crashes[i])
		defer want.close()
		if said, err := want.again(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		var group errgroup.Group
		for _, order := range []string{"stop", "reload", "start", "restart"} {
			group.Go(func() error { hungAt(t, want, order); return nil })
		}
		_ = group.Wait()
	}
}

func hungAt(t *testing.T, want *scene, order string) {
	s := newScene(t, want.crashing)
	defer s.close()
	f := &refusal{named: order, hang: true}
	h := f.on(s.root)
	h.limit = 2 * time.Second
	started := time.Now()
	_, err := s.on(t.Context(), h)
	if f.what == "" {
		return // this workflow does not give this order
	}
	if took := time.Since(started); err == nil || took > 2*time.Minute || !strings.Contains(err.Error(), order) {
		t.Errorf("%s hangs: the run ended after %s with %v", order, took, err)
	}
	s.finishesAs(t, want, order+" hung")
}
