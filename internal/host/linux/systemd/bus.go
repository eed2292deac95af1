// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd controls the real host's units over D-Bus, and reads its journal. Bus is the connection; it implements
// host.UnitReader and host.UnitWriter.
package systemd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// busTimeout bounds connecting to systemd and one question to it. A slow host takes seconds; without systemd, there's an error
	// at once.
	busTimeout = time.Minute
	// jobTimeout bounds a job if the caller sets no deadline. systemd itself gives a unit 90 seconds to start or stop, unless the
	// unit says otherwise, as containerd's does (containerd.ServiceUnit).
	jobTimeout = 10 * time.Minute
)

// Bus is the connection to systemd, opened when it's first needed. It implements host.UnitReader and UnitWriter.
type Bus struct {
	// Sync writes the file system of a directory to the disk, after systemd has changed links there.
	Sync func(dir string) error

	mu     sync.Mutex
	conn   *dbus.Conn
	cancel context.CancelFunc // ends the connection's goroutines
}

// get returns the connection. It outlives ctx, which only bounds opening it.
func (b *Bus) get(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	if !booted() {
		return nil, host.ErrNoSystemd
	}
	b.drop()
	ctx, done := context.WithTimeout(ctx, busTimeout)
	defer done()
	life, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, cancel)
	conn, err := dial(life)
	if !stop() { // ctx has ended, and the connection with it
		if err == nil {
			conn.Close()
		}
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, busError(err)
	}
	b.conn, b.cancel = conn, cancel
	return conn, nil
}

// bootedDir exists if systemd is the init system: sd_booted(3).
const bootedDir = "/run/systemd/system"

// booted reports whether there's a systemd to ask: this host's, or another whose bus the environment names, such as that of a
// container's host.
func booted() bool {
	if os.Getenv("DBUS_SYSTEM_BUS_ADDRESS") != "" {
		return true
	}
	info, err := os.Lstat(bootedDir)
	return err == nil && info.IsDir()
}

// dial connects to systemd over the system bus or, as systemctl does for root on hosts without a bus, directly.
func dial(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemConnectionContext(ctx)
	if err == nil || os.Geteuid() != 0 {
		return conn, err
	}
	if direct, directErr := dbus.NewSystemdConnectionContext(ctx); directErr == nil {
		return direct, nil
	}
	return nil, err
}

// Close ends the connection.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
}

func (b *Bus) drop() {
	if b.conn != nil {
		b.conn.Close()
		b.cancel()
		b.conn = nil
	}
}

func (b *Bus) Unit(ctx context.Context, name string) (host.UnitState, error) {
	name = host.UnitName(name)
	conn, err := b.get(ctx)
	if err != nil {
		return host.UnitState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	all, err := conn.GetAllPropertiesContext(ctx, name)
	if err != nil {
		return host.UnitState{}, unitFailure(name, "ask about", err)
	}
	state := host.UnitState{
		LoadState:     property[string](all, "LoadState"),
		ActiveState:   property[string](all, "ActiveState"),
		SubState:      property[string](all, "SubState"),
		UnitFileState: property[string](all, "UnitFileState"),
		Result:        property[string](all, "Result"),
		Restarts:      property[uint32](all, "NRestarts"),
		MainPID:       property[uint32](all, "MainPID"),
		Fragment:      property[string](all, "FragmentPath"),
		Current:       all["NeedDaemonReload"] == false,
	}
	state.Replaced = replaced(state.MainPID)
	if since := property[uint64](all, "ActiveEnterTimestamp"); since != 0 { // in microseconds since 1970
		state.ActiveSince = time.UnixMicro(int64(since))
	}
	// A list of structures that begin with the path of a command: org.freedesktop.systemd1(5).
	if commands := property[[][]any](all, "ExecStart"); len(commands) > 0 && len(commands[0]) > 0 {
		state.Program, _ = commands[0][0].(string)
	}
	return state, nil
}

// property returns a unit's property, as D-Bus returns it; zero if the unit doesn't have it.
func property[T any](all map[string]any, name string) T {
	value, _ := all[name].(T)
	return value
}

// replaced reports whether a process's program file was replaced since it started: proc_pid_exe(5).
func replaced(pid uint32) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasSuffix(path, " (deleted)")
}

func (b *Bus) ReloadUnits(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := b.get(ctx)
	if err != nil {
		return err
	}
	if err := conn.ReloadContext(ctx); err != nil {
		return busFailure("reload systemd's units", err)
	}
	return nil
}

// bounded adds a deadline to a context that has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, jobTimeout)
}
