// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// faultyHost refuses one of its orders.
type faultyHost struct {
	*lastingHost
	mu    sync.Mutex
	count int
	at    int    // which order, from 1; or
	named string // the first of this name
	what  string // the order that it was
	hang  bool   // the order hangs until its time is over
}

// diskFaults are the errors of a disk on write, in turn.
var diskFaults = []error{syscall.EIO, syscall.ENOSPC, syscall.EROFS}

// fault is the error if this is the order to refuse.
func (h *faultyHost) fault(order string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count++; h.what != "" || h.count != h.at && (h.named == "" || h.named != order) {
		return nil
	}
	h.what = order
	return diskFaults[h.count%len(diskFaults)]
}

// late is fault for orders to other programs, which may also never answer.
func (h *faultyHost) late(ctx context.Context, order string) error {
	err := h.fault(order)
	if err == nil || !h.hang {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *faultyHost) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	if err := h.fault("write " + path); err != nil {
		return false, &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return h.lastingHost.WriteFile(path, data, mode)
}

func (h *faultyHost) WriteSecret(path string, data []byte) (bool, error) {
	return h.WriteFile(path, data, 0o600)
}

func (h *faultyHost) EnsureDir(path string, mode fs.FileMode) error {
	if err := h.fault("mkdir " + path); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return h.lastingHost.EnsureDir(path, mode)
}

func (h *faultyHost) Remove(path string) error {
	if err := h.fault("remove " + path); err != nil {
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return h.lastingHost.Remove(path)
}

func (h *faultyHost) unit(ctx context.Context, job, name string, do func(context.Context, string) error) error {
	if err := h.late(ctx, job); err != nil {
		return &host.UnitError{Unit: name, Job: job, Result: host.ResultRefused, Err: err}
	}
	return do(ctx, name)
}

func (h *faultyHost) StartUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "start", name, h.lastingHost.StartUnit)
}

func (h *faultyHost) StopUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "stop", name, h.lastingHost.StopUnit)
}

func (h *faultyHost) RestartUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "restart", name, h.lastingHost.RestartUnit)
}

func (h *faultyHost) ReloadUnits(ctx context.Context) error {
	return h.unit(ctx, "reload", "", func(ctx context.Context, _ string) error { return h.lastingHost.ReloadUnits(ctx) })
}

func (h *faultyHost) PullImage(ctx context.Context, socket, image string) error {
	if err := h.late(ctx, "pull "+image); err != nil {
		return &host.RuntimeError{Socket: socket, Op: "pull image " + image, Reason: err.Error(), Err: err}
	}
	return h.lastingHost.PullImage(ctx, socket, image)
}

// WriteStream fails in the middle.
func (h *faultyHost) WriteStream(path string, fill func(io.Writer) error) error {
	failure := h.fault("write " + path)
	if failure == nil {
		return h.lastingHost.WriteStream(path, fill)
	}
	return h.lastingHost.WriteStream(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half a snapshot")
		return &fs.PathError{Op: "write", Path: path, Err: failure}
	})
}

func (h *faultyHost) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	name, _, _ := strings.Cut(id, "/")
	if err := h.late(ctx, "stop container "+name); err != nil {
		return &host.RuntimeError{Socket: socket, Op: "stop container " + name, Reason: err.Error(), Err: err}
	}
	return h.lastingHost.StopContainer(ctx, socket, id, grace)
}

// TestHostFaults refuses each order to the host once. The run reports that and leaves no partial file. The same run
// again finishes as if nothing had happened.
func TestHostFaults(t *testing.T) {
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			want := newScene(t, c)
			defer want.close()
			counting := &faultyHost{lastingHost: newLastingHost(want.root)}
			if said, err := want.on(t.Context(), counting); err != nil {
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
	h := &faultyHost{lastingHost: newLastingHost(s.root), at: at}
	said, err := s.on(t.Context(), h)
	pulled := strings.HasPrefix(h.what, "pull ") // pulls are retried
	if h.what == "" || pulled && err == nil {
		return
	}
	cause := diskFaults[at%len(diskFaults)]
	if err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("%s, refused with %q: the run ended with %v\n%s", h.what, cause, err, said)
	}
	verb, path, _ := strings.Cut(h.what, " ")
	if strings.HasPrefix(path, "/") && err != nil && !strings.Contains(err.Error(), path) {
		t.Errorf("%s of %s, refused with %q: the error does not name the file: %v", verb, path, cause, err)
	}
	noPartialFile(t, h.what, s.root)
	s.finishesAs(t, want, h.what+", refused")
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
	for _, c := range crashes {
		want := newScene(t, c)
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
	h := &faultyHost{lastingHost: newLastingHost(s.root), named: order, hang: true}
	h.limit = 2 * time.Second
	started := time.Now()
	_, err := s.on(t.Context(), h)
	if h.what == "" {
		return // this workflow does not give this order
	}
	if took := time.Since(started); err == nil || took > 20*time.Second || !strings.Contains(err.Error(), order) {
		t.Errorf("%s hangs: the run ended after %s with %v", order, took, err)
	}
	s.finishesAs(t, want, order+" hung")
}
