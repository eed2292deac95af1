// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

// setState is a call that changes the state of a unit's files; link says what it does to a link, if anything.
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

// UnmaskUnitFiles makes no change, as if the link were gone already.
func (f *fakeSystemd) UnmaskUnitFiles(files []string, runtime bool) ([]linkChange, *godbus.Error) {
	return f.setState("static", "", "unmask %v %v", files, runtime)
}

// fileChanges are the orders that change the state of a unit's files.
var fileChanges = []struct {
	verb   Verb
	order  func(context.Context, UnitWriter) error
	before string // a state in which it is needed
	after  string
	calls  []string
}{
	{Enable, func(ctx context.Context, u UnitWriter) error { return u.EnableUnit(ctx, "kubelet") }, "disabled", "enabled",
		[]string{"enable [kubelet.service] false false", "reload"}},
	{Disable, func(ctx context.Context, u UnitWriter) error { return u.DisableUnit(ctx, "kubelet") }, "enabled", "disabled",
		[]string{"disable [kubelet.service] false", "reload"}},
	{Mask, func(ctx context.Context, u UnitWriter) error { return u.MaskUnit(ctx, "kubelet") }, "enabled", "masked",
		[]string{"mask [kubelet.service] false false", "reload"}},
	{Unmask, func(ctx context.Context, u UnitWriter) error { return u.UnmaskUnit(ctx, "kubelet") }, "masked", "static",
		[]string{"unmask [kubelet.service] false"}},
}

// TestUnitFiles: an order that is not needed is none, and plan, run and record agree.
func TestUnitFiles(t *testing.T) {
	for _, c := range fileChanges {
		t.Run(string(c.verb), func(t *testing.T) {
			f := &fakeSystemd{state: c.before}
			f.serve(t)
			r := newReal(t)
			planned, add := records()
			did, record := records()
			for label, h := range map[string]Host{"plan": NewOverlay(r, add), "run": NewRecorder(r, record)} {
				f.mu.Lock()
				f.state = c.before
				f.mu.Unlock()
				if err := errors.Join(c.order(t.Context(), h), c.order(t.Context(), h)); err != nil {
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
			want := []Action{{Verb: c.verb, Unit: "kubelet.service"}}
			if diff := cmp.Diff([][]Action{want, want}, [][]Action{*planned, *did}); diff != "" {
				t.Errorf("actions of plan and run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnitFilesRefused(t *testing.T) {
	for _, c := range fileChanges {
		t.Run(string(c.verb), func(t *testing.T) {
			f := &fakeSystemd{state: c.before, refuse: godbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"reason"})}
			f.serve(t)
			err := c.order(t.Context(), NewRecorder(newReal(t), func(a Action) { t.Errorf("recorded %v", a) }))
			var typed *UnitError
			want := UnitError{Unit: "kubelet.service", Result: ResultDenied}
			if !errors.As(err, &typed) || typed.Unit != want.Unit || typed.Result != want.Result || typed.Job+" unit" != string(c.verb) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// blind is a host without systemd.
type blind struct{ Host }

func (blind) Unit(context.Context, string) (UnitState, error) { return UnitState{}, ErrNoSystemd }

// Where systemd cannot be asked, a plan shows what may be needed.
func TestUnitFilesPlannedBlindly(t *testing.T) {
	for _, c := range fileChanges {
		list, record := records()
		o := NewOverlay(blind{}, record)
		if err := c.order(t.Context(), o); err != nil {
			t.Errorf("%s: error %v", c.verb, err)
		}
		if diff := cmp.Diff([]Action{{Verb: c.verb, Unit: "kubelet.service"}}, *list); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.verb, diff)
		}
	}
}

// unitHost has one unit.
type unitHost struct {
	Host
	state UnitState
}

func (u unitHost) Unit(context.Context, string) (UnitState, error) { return u.state, nil }

// TestUnitPlanned: a unit whose file the plan writes is there.
func TestUnitPlanned(t *testing.T) {
	etc, lib := "/etc/systemd/system/x.service", "/usr/local/lib/systemd/system/x.service"
	missing := UnitState{LoadState: "not-found", ActiveState: "inactive"}
	for name, test := range map[string]struct {
		write, remove []string
		want          string // Fragment
	}{
		"none":        {},
		"one":         {write: []string{lib}, want: lib},
		"both":        {write: []string{lib, etc}, want: etc},
		"one removed": {write: []string{lib, etc}, remove: []string{etc}, want: lib},
		"all removed": {write: []string{lib}, remove: []string{lib}},
		"a drop-in":   {write: []string{"/etc/systemd/system/x.service.d/1.conf"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOverlay(unitHost{NewAt(t.TempDir()), missing}, func(Action) {})
			for _, path := range test.write {
				if err := errors.Join(o.EnsureDir(filepath.Dir(path), 0o755), second(o.WriteFile(path, nil, 0o644))); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range test.remove {
				if err := o.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			want := missing
			if test.want != "" {
				want.LoadState, want.Fragment, want.Current = "loaded", test.want, true
			}
			if got, err := o.Unit(t.Context(), "x"); err != nil || !cmp.Equal(want, got) {
				t.Errorf("error %v, unit (-want +got):\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}

// TestUnitReplacedInPlan: a running program whose file the plan replaces runs in its old version until a restart.
func TestUnitReplacedInPlan(t *testing.T) {
	for name, test := range map[string]struct {
		active, written string
		want            bool
	}{
		"replaced":       {"active", "/bin/kubelet", true},
		"another":        {"active", "/bin/runc", false},
		"is not running": {"inactive", "/bin/kubelet", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(root+"/bin", 0o755); err != nil {
				t.Fatal(err)
			}
			o := NewOverlay(unitHost{NewAt(root), UnitState{LoadState: "loaded", ActiveState: test.active, Program: "/bin/kubelet"}}, func(Action) {})
			if err := o.WriteSet([]SetFile{member(test.written, "new", 0o755)}, nil); err != nil {
				t.Fatal(err)
			}
			if state, err := o.Unit(t.Context(), "kubelet"); state.Replaced != test.want || err != nil {
				t.Errorf("Replaced %v, error %v", state.Replaced, err)
			}
			if err := o.RestartUnit(t.Context(), "kubelet"); err != nil {
				t.Fatal(err)
			}
			if state, _ := o.Unit(t.Context(), "kubelet"); state.Replaced {
				t.Error("it is replaced after a restart")
			}
		})
	}
}

// TestReplaced: a process whose program's file was replaced, or removed, runs another version.
func TestReplaced(t *testing.T) {
	program, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	put(t, path, string(program), 0o755)
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
	put(t, path+".new", "new", 0o755)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if !replaced(pid) {
		t.Error("a program does not count as replaced")
	}
}
