// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package systemd asks the real host's systemd over D-Bus, and reads its journal.
package systemd

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// busTimeout bounds connecting to systemd and one question to it.
	busTimeout = 10 * time.Second
	// jobTimeout bounds a job if the caller sets no deadline. systemd itself gives a unit 90 seconds to start or stop, unless the
	// unit says otherwise.
	jobTimeout = 5 * time.Minute
	// busCheck is how often a wait for a job checks the connection to the bus.
	busCheck = time.Second
	// jobDone is the only result of a systemd job that means success.
	jobDone = "done"
)

// Bus is the connection to systemd, opened when it's first needed. It implements host.UnitReader and UnitWriter.
type Bus struct {
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
		return nil, &host.BusError{Err: err}
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
	p := properties(all)
	pid := p.number("MainPID")
	return host.UnitState{
		LoadState:     p.text("LoadState"),
		ActiveState:   p.text("ActiveState"),
		SubState:      p.text("SubState"),
		UnitFileState: p.text("UnitFileState"),
		Result:        p.text("Result"),
		Restarts:      p.number("NRestarts"),
		MainPID:       pid,
		Replaced:      replaced(pid),
		ActiveSince:   p.time("ActiveEnterTimestamp"),
		Fragment:      p.text("FragmentPath"),
		Program:       p.program(),
		Current:       p["NeedDaemonReload"] == false,
	}, nil
}

// replaced reports whether a process's program file was replaced since it started: proc_pid_exe(5).
func replaced(pid uint32) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasSuffix(path, " (deleted)")
}

// ReloadUnits makes systemd read all unit files again.
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

func (b *Bus) StartUnit(ctx context.Context, name string) error {
	return b.runJob(ctx, "start", name, (*dbus.Conn).StartUnitContext)
}

func (b *Bus) StopUnit(ctx context.Context, name string) error {
	return b.runJob(ctx, "stop", name, (*dbus.Conn).StopUnitContext)
}

func (b *Bus) RestartUnit(ctx context.Context, name string) error {
	return b.runJob(ctx, "restart", name, (*dbus.Conn).RestartUnitContext)
}

type queueFunc func(c *dbus.Conn, ctx context.Context, name, mode string, result chan<- string) (int, error)

// runJob queues a job and waits until it ends or ctx does.
func (b *Bus) runJob(ctx context.Context, job, name string, queue queueFunc) error {
	name = host.UnitName(name)
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := b.get(ctx)
	if err != nil {
		return err
	}
	ended := make(chan string, 1) // buffered: runJob may have returned
	if _, err := queue(conn, ctx, name, "replace", ended); err != nil {
		return unitFailure(name, job, err)
	}
	check := time.NewTicker(busCheck)
	defer check.Stop()
	for {
		select {
		case result := <-ended:
			if result == jobDone {
				return nil
			}
			state, _ := b.Unit(ctx, name) // evidence only
			return &host.UnitError{Unit: name, Job: job, Result: result, State: state}
		case <-check.C:
			if !conn.Connected() {
				return &host.BusError{Err: errors.Errorf("the connection was lost while waiting for systemd to %s %s", job, name)}
			}
		case <-ctx.Done():
			return &host.UnitError{Unit: name, Job: job, Result: host.ResultUnknown, Err: context.Cause(ctx)}
		}
	}
}

// bounded adds a deadline to a context without one.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, jobTimeout)
}

// properties are a unit's properties, as D-Bus returns them.
type properties map[string]any

func (p properties) text(name string) string {
	s, _ := p[name].(string)
	return s
}

// program is the path of ExecStart's first command; ExecStart is a list of structures that begin with the path:
// org.freedesktop.systemd1(5).
func (p properties) program() string {
	commands, _ := p["ExecStart"].([][]any)
	if len(commands) == 0 || len(commands[0]) == 0 {
		return ""
	}
	path, _ := commands[0][0].(string)
	return path
}

func (p properties) number(name string) uint32 {
	n, _ := p[name].(uint32)
	return n
}

// time reads a timestamp, which systemd gives in microseconds since 1970.
func (p properties) time(name string) time.Time {
	us, _ := p[name].(uint64)
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(us))
}
