// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// setState is a call that changes the state of a unit's files; link describes the change to a link, if any.
func (f *fakeSystemd) setState(state, link, format string, args ...any) ([]linkChange, *godbus.Error) {
	if err := f.note(format, args...); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
	if link == "" {
		return nil, nil
	}
	return []linkChange{{link, "/etc/systemd/system/kubelet.service", ""}}, nil
}

func (f *fakeSystemd) DisableUnitFiles(files []string, runtime bool) ([]linkChange, *godbus.Error) {
	return f.setState("disabled", "unlink", "disable %v %v", files, runtime)
}

func (f *fakeSystemd) MaskUnitFiles(files []string, runtime, force bool) ([]linkChange, *godbus.Error) {
	return f.setState("masked", "symlink", "mask %v %v %v", files, runtime, force)
}

// UnmaskUnitFiles makes no change, as if a run that was killed before the reload had removed the link already.
func (f *fakeSystemd) UnmaskUnitFiles(files []string, runtime bool) ([]linkChange, *godbus.Error) {
	return f.setState("static", "", "unmask %v %v", files, runtime)
}

// fileChanges are the orders that change the state of a unit's files.
var fileChanges = []struct {
	order  host.UnitOrder
	before string // a state in which it is needed
	after  string
	calls  []string
}{
	{host.EnableUnit, "disabled", "enabled", []string{"enable [kubelet.service] false false", "sync /etc", "reload"}},
	{host.DisableUnit, "enabled", "disabled", []string{"disable [kubelet.service] false", "sync /etc", "reload"}},
	{host.MaskUnit, "enabled", "masked", []string{"mask [kubelet.service] false false", "sync /etc", "reload"}},
	{host.UnmaskUnit, "masked", "static", []string{"unmask [kubelet.service] false", "sync /etc", "reload"}},
}

// TestUnitFiles: an unneeded order is none, and plan, run and record agree.
func TestUnitFiles(t *testing.T) {
	for _, c := range fileChanges {
		t.Run(c.order.Job, func(t *testing.T) {
			f := &fakeSystemd{state: c.before}
			f.serve(t)
			r := newBus(t)
			r.Sync = func(dir string) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.calls = append(f.calls, "sync "+dir)
				return nil
			}
			planned, add := fixture.Records()
			did, record := fixture.Records()
			for label, h := range map[string]host.Host{"plan": plan.NewOverlay(r, add), "run": plan.NewRecorder(r, record)} {
				f.mu.Lock()
				f.state = c.before
				f.mu.Unlock()
				if err := errors.Join(h.OrderUnit(t.Context(), c.order, "kubelet"), h.OrderUnit(t.Context(), c.order, "kubelet")); err != nil {
					t.Fatal(err)
				}
				if state, err := h.Unit(t.Context(), "kubelet"); state.UnitFileState != c.after || err != nil {
					t.Errorf("%s: %q afterwards, error %v", label, state.UnitFileState, err)
				}
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if diff := cmp.Diff(c.calls, f.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			want := []host.Action{{Verb: c.order.Verb, Unit: "kubelet.service"}}
			if diff := cmp.Diff([][]host.Action{want, want}, [][]host.Action{*planned, *did}); diff != "" {
				t.Errorf("actions of plan and run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnitFilesRefused(t *testing.T) {
	for _, c := range fileChanges {
		t.Run(c.order.Job, func(t *testing.T) {
			f := &fakeSystemd{state: c.before, refuse: godbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"reason"})}
			f.serve(t)
			err := plan.NewRecorder(newBus(t), func(a host.Action) { t.Errorf("recorded %v", a) }).OrderUnit(t.Context(), c.order, "kubelet")
			fact.In(t, fixture.Told(err), c.order.Job+" kubelet.service", "as root")
		})
	}
}

// blind is a host without systemd.
type blind struct{ host.Host }

func (blind) Unit(context.Context, string) (host.UnitState, error) {
	return host.UnitState{}, host.ErrNoSystemd
}

// Where systemd can't be asked, a plan shows orders that may be needed.
func TestUnitFilesPlannedBlindly(t *testing.T) {
	for _, c := range fileChanges {
		list, record := fixture.Records()
		o := plan.NewOverlay(blind{}, record)
		if err := o.OrderUnit(t.Context(), c.order, "kubelet"); err != nil {
			t.Errorf("%s: error %v", c.order.Job, err)
		}
		if diff := cmp.Diff([]host.Action{{Verb: c.order.Verb, Unit: "kubelet.service"}}, *list); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.order.Job, diff)
		}
	}
}

// TestReplaced: a process whose program's file was replaced, or removed, runs another version.
func TestReplaced(t *testing.T) {
	program, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	fixture.PutMode(t, path, string(program), 0o755)
	cmd := exec.CommandContext(t.Context(), path)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, inErr = in.Write([]byte("x"))
	_, outErr = out.Read(make([]byte, 1)) // it runs now
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	pid := uint32(cmd.Process.Pid)
	if replaced(pid) || replaced(0) {
		t.Error("a program counts as replaced before it is")
	}
	fixture.PutMode(t, path+".new", "new", 0o755)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if !replaced(pid) {
		t.Error("a program does not count as replaced")
	}
}
