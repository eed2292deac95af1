// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const busEnv = "DBUS_SYSTEM_BUS_ADDRESS"

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type><listen>unix:path=%s</listen>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
`

// startBus runs a message bus for this test and makes it the system bus.
func startBus(t *testing.T) (kill func()) {
	t.Helper()
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		t.Skip("there is no dbus-daemon here; the lab tries real systemd")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "bus")
	fixture.PutMode(t, filepath.Join(dir, "conf"), fmt.Sprintf(busConfig, socket), 0o644)
	cmd := exec.CommandContext(t.Context(), "dbus-daemon", "--nofork", "--nopidfile", "--print-address", "--config-file", filepath.Join(dir, "conf"))
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(kill)
	if _, err := out.Read(make([]byte, 200)); err != nil { // it listens now
		t.Fatal(err)
	}
	t.Setenv(busEnv, "unix:path="+socket)
	return kill
}

const (
	managerPath = godbus.ObjectPath("/org/freedesktop/systemd1")
	manager     = "org.freedesktop.systemd1.Manager"
)

// fakeSystemd answers on a real bus as systemd does, as far as Units asks.
type fakeSystemd struct {
	conn    *godbus.Conn
	killBus func()
	result  string        // of jobs; empty: they don't end
	refuse  *godbus.Error // the answer to each call on a unit

	mu    sync.Mutex
	calls []string
	state string // UnitFileState
	dying int    // how often systemd is asked before it notices the killed process

	jobs atomic.Uint32
}

func (f *fakeSystemd) note(format string, args ...any) *godbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.refuse
}

func (f *fakeSystemd) job(verb, unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	if err := f.note("%s %s %s", verb, unit, mode); err != nil {
		return "", err
	}
	id := f.jobs.Add(1)
	path := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", id))
	if f.result != "" {
		// The worst case: the job has ended before the caller knows its name.
		_ = f.conn.Emit(managerPath, manager+".JobRemoved", id, path, unit, f.result)
	}
	return path, nil
}

func (f *fakeSystemd) StartUnit(unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	return f.job("start", unit, mode)
}

func (f *fakeSystemd) StopUnit(unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	return f.job("stop", unit, mode)
}

func (f *fakeSystemd) RestartUnit(unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	return f.job("restart", unit, mode)
}

func (f *fakeSystemd) KillUnit(unit, who string, signal int32) *godbus.Error {
	return f.note("kill %s %s %d", unit, who, signal)
}

func (f *fakeSystemd) Reload() *godbus.Error { return f.note("reload") }

type linkChange struct{ Type, File, Destination string }

func (f *fakeSystemd) EnableUnitFiles(files []string, runtime, force bool) (bool, []linkChange, *godbus.Error) {
	if err := f.note("enable %v %v %v", files, runtime, force); err != nil {
		return false, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = "enabled"
	return true, []linkChange{{"symlink", "/etc/systemd/system/multi-user.target.wants/kubelet.service", "/lib/systemd/system/kubelet.service"}}, nil
}

func (f *fakeSystemd) GetAll(string) (map[string]godbus.Variant, *godbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, pid := godbus.MakeVariant, uint32(7)
	if f.dying > 0 {
		if f.dying--; f.dying == 0 {
			pid = 0
		}
	}
	return map[string]godbus.Variant{
		"LoadState": v("loaded"), "ActiveState": v("activating"), "SubState": v("auto-restart"),
		"UnitFileState": v(f.state), "Result": v("exit-code"), "NRestarts": v(uint32(4)), "MainPID": v(pid),
		"ActiveEnterTimestamp": v(uint64(1_700_000_000_000_000)), "Other": v(true),
		"NeedDaemonReload": v(false),
	}, nil
}

func (f *fakeSystemd) serve(t *testing.T) {
	t.Helper()
	f.killBus = startBus(t)
	conn, err := godbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f.conn = conn
	kubelet := managerPath + "/unit/" + godbus.ObjectPath(dbus.PathBusEscape("kubelet.service"))
	for _, err := range []error{
		conn.Export(f, managerPath, manager),
		conn.Export(f, kubelet, "org.freedesktop.DBus.Properties"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.RequestName("org.freedesktop.systemd1", godbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
}

func TestUnits(t *testing.T) {
	f := &fakeSystemd{result: "done", state: "disabled"}
	f.serve(t)
	r := newBus(t)
	ctx := t.Context()
	for range 2 {
		err := errors.Join(
			r.OrderUnit(ctx, host.StopUnit, "kubelet"), r.ReloadUnits(ctx), r.OrderUnit(ctx, host.EnableUnit, "kubelet"),
			r.OrderUnit(ctx, host.StartUnit, "kubelet.service"), r.OrderUnit(ctx, host.RestartUnit, "kubelet"))
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"stop kubelet.service replace", "reload", "enable [kubelet.service] false false", "reload",
		"start kubelet.service replace", "restart kubelet.service replace",
		"stop kubelet.service replace", "reload", // enabled already
		"start kubelet.service replace", "restart kubelet.service replace",
	}
	f.mu.Lock()
	calls := f.calls
	f.mu.Unlock()
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	state, err := r.Unit(ctx, "kubelet")
	wantState := host.UnitState{
		LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", UnitFileState: "enabled",
		Result: "exit-code", Restarts: 4, MainPID: 7, ActiveSince: time.Unix(1_700_000_000, 0), Current: true,
	}
	if err != nil || !cmp.Equal(wantState, state) {
		t.Errorf("error %v, state (-want +got):\n%s", err, cmp.Diff(wantState, state))
	}
}

func TestUnitJobResults(t *testing.T) {
	for result, want := range map[string][]string{
		"failed":     {`"failed"`, "activating", "exit-code", "`journalctl -u kubelet.service`"},
		"timeout":    {`"timeout"`, "activating", "exit-code", "`journalctl -u kubelet.service`"},
		"canceled":   {"another job", "`systemctl list-jobs`"},
		"dependency": {"`systemctl --failed`"},
		"":           {"deadline", "`systemctl status kubelet.service`"},
	} {
		t.Run("result "+result, func(t *testing.T) {
			f := &fakeSystemd{result: result}
			f.serve(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := newBus(t).OrderUnit(ctx, host.StartUnit, "kubelet")
			if errors.Is(err, context.DeadlineExceeded) != (result == "") {
				t.Fatalf("error %#v", err)
			}
			fact.In(t, fixture.Told(err), append(want, "start", "kubelet.service")...)
		})
	}
}

// TestKillUnit: it's over when systemd knows.
func TestKillUnit(t *testing.T) {
	f := &fakeSystemd{dying: 3}
	f.serve(t)
	r := newBus(t)
	if err := errors.Join(r.OrderUnit(t.Context(), host.SuspendUnit, "kubelet"), r.OrderUnit(t.Context(), host.KillUnit, "kubelet")); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff([]string{"kill kubelet.service main 19", "kill kubelet.service main 9"}, f.calls); diff != "" || f.dying != 0 {
		t.Errorf("calls (-want +got):\n%s, asked %d times too few", diff, f.dying)
	}
}

func TestUnitRefusals(t *testing.T) {
	for name, want := range map[string][]string{
		"org.freedesktop.systemd1.NoSuchUnit":                         {"install", "package"},
		"org.freedesktop.systemd1.UnitExists":                         {"file", "way", "reason", "`systemctl disable kubelet.service`"},
		"org.freedesktop.DBus.Error.FileExists":                       {"file", "way", "reason", "`systemctl disable kubelet.service`"},
		"org.freedesktop.systemd1.UnitMasked":                         {"masked", "`systemctl unmask kubelet.service`"},
		"org.freedesktop.DBus.Error.AccessDenied":                     {"refused", "as root"},
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": {"refused", "as root"},
		"org.freedesktop.systemd1.TransactionIsDestructive":           {"refused: reason", "`systemctl status kubelet.service`"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSystemd{refuse: godbus.NewError(name, []any{"reason"})}
			f.serve(t)
			r := newBus(t)
			for _, order := range []host.UnitOrder{host.StopUnit, host.EnableUnit, host.SuspendUnit, host.KillUnit} {
				fact.In(t, fixture.Told(r.OrderUnit(t.Context(), order, "kubelet")), append(want, order.Job+" kubelet.service")...)
			}
			err := r.ReloadUnits(t.Context())
			if err == nil || strings.Contains(fixture.Told(err), "as root") != slices.Contains(want, "as root") {
				t.Errorf("reload: error %v", err)
			}
		})
	}
}

func noBus(err error) bool { return err != nil && strings.Contains(err.Error(), "D-Bus") }

func TestNoBus(t *testing.T) {
	if _, err := os.Stat("/run/systemd/private"); err == nil && os.Geteuid() == 0 {
		t.Skip("systemd is reachable here without a bus")
	}
	t.Setenv(busEnv, "unix:path="+filepath.Join(t.TempDir(), "none"))
	r := newBus(t)
	ctx := t.Context()
	_, unitErr := r.Unit(ctx, "kubelet")
	for _, err := range []error{unitErr, r.OrderUnit(ctx, host.StartUnit, "kubelet"), r.OrderUnit(ctx, host.StopUnit, "kubelet"), r.OrderUnit(ctx, host.EnableUnit, "kubelet"), r.ReloadUnits(ctx)} {
		fact.In(t, fixture.Told(err), "systemd", "D-Bus", "dial unix", "`systemctl status`", "as root")
	}
}

// A host without systemd is reported as such. With systemd, a failing D-Bus is an error.
func TestNoSystemd(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	t.Setenv(busEnv, "")
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for name, ask := range asks {
		if err := ask(t.Context(), newBus(t)); !errors.Is(err, host.ErrNoSystemd) || !strings.Contains(err.Error(), bootedDir) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := os.MkdirAll(bootedDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, ask := range asks {
		if err := ask(t.Context(), newBus(t)); !noBus(err) || errors.Is(err, host.ErrNoSystemd) {
			t.Errorf("%s, with a systemd that cannot be reached: error %v", name, err)
		}
	}
}

// A bus that accepts connections but doesn't answer delays the caller no longer than its deadline.
func TestSilentBus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv(busEnv, "unix:path="+path)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := newBus(t).ReloadUnits(ctx); !noBus(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// A bus that disappears while a job runs ends the wait.
func TestBusLost(t *testing.T) {
	f := &fakeSystemd{}
	f.serve(t)
	b := newBus(t)
	conn, err := b.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queue := func(ctx context.Context, name, mode string, result chan<- string) (int, error) {
		defer f.killBus() // after systemd's answer has named the job
		return conn.StartUnitContext(ctx, name, mode, result)
	}
	err = b.runJob(t.Context(), conn, host.StartUnit.Job, "kubelet.service", queue)
	if !noBus(err) {
		t.Errorf("error %v", err)
	}
	fact.Error(t, err, "lost", "start kubelet.service")
}
