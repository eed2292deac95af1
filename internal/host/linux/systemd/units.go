// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// busCheck is how often a wait for a job checks the connection to the bus.
	busCheck = time.Second
	// jobDone is the only result of a systemd job that means success.
	jobDone = "done"
	// reapTimeout is more than systemd needs to notice a killed process, even on a busy host; reapCheck is how often it's asked.
	reapTimeout = 20 * time.Second
	reapCheck   = 10 * time.Millisecond
)

func (b *Bus) OrderUnit(ctx context.Context, order host.UnitOrder, name string) error {
	name = host.UnitName(name)
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := b.get(ctx)
	if err != nil {
		return err
	}
	switch order {
	case host.StartUnit:
		return b.runJob(ctx, conn, order.Job, name, conn.StartUnitContext)
	case host.StopUnit:
		return b.runJob(ctx, conn, order.Job, name, conn.StopUnitContext)
	case host.RestartUnit:
		return b.runJob(ctx, conn, order.Job, name, conn.RestartUnitContext)
	case host.SuspendUnit:
		return unitFailure(name, order.Job, conn.KillUnitWithTarget(ctx, name, dbus.Main, int32(unix.SIGSTOP)))
	case host.KillUnit:
		return b.kill(ctx, conn, name)
	}
	return b.changeFiles(ctx, conn, order, name)
}

type queueFunc func(ctx context.Context, name, mode string, result chan<- string) (int, error)

// runJob queues a job and waits until it ends or ctx does.
func (b *Bus) runJob(ctx context.Context, conn *dbus.Conn, job, name string, queue queueFunc) error {
	began := time.Now()
	ended := make(chan string, 1) // buffered: runJob may have returned
	if _, err := queue(ctx, name, "replace", ended); err != nil {
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
			return jobFailure(name, job, result, state)
		case <-check.C:
			if !conn.Connected() {
				return busError(errors.Errorf("the connection was lost while waiting for systemd to %s %s", job, name))
			}
		case <-ctx.Done():
			return unfinished(name, job, errors.WithMessagef(context.Cause(ctx), "it had %s", time.Since(began).Round(time.Millisecond)))
		}
	}
}

// kill returns when systemd has noticed: a unit stopped before that counts as failed.
func (b *Bus) kill(ctx context.Context, conn *dbus.Conn, name string) error {
	job := host.KillUnit.Job
	if err := conn.KillUnitWithTarget(ctx, name, dbus.Main, int32(unix.SIGKILL)); err != nil {
		return unitFailure(name, job, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	for {
		state, err := b.Unit(ctx, name)
		if err != nil || state.MainPID == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return unfinished(name, job, errors.WithMessagef(context.Cause(ctx), "it had %s", reapTimeout))
		case <-time.After(reapCheck):
		}
	}
}

// changeFiles changes the links by which systemd knows a unit's state, if needed. A run that was killed may have changed them without
// a reload: then there's nothing to change, but systemd still knows the former state.
func (b *Bus) changeFiles(ctx context.Context, conn *dbus.Conn, order host.UnitOrder, name string) error {
	state, err := b.Unit(ctx, name)
	if err != nil || !order.Needed(state.UnitFileState) {
		return err
	}
	switch files := []string{name}; order {
	case host.EnableUnit:
		_, _, err = conn.EnableUnitFilesContext(ctx, files, false, false)
	case host.DisableUnit:
		_, err = conn.DisableUnitFilesContext(ctx, files, false)
	case host.MaskUnit:
		_, err = conn.MaskUnitFilesContext(ctx, files, false, false)
	case host.UnmaskUnit:
		_, err = conn.UnmaskUnitFilesContext(ctx, files, false)
	default:
		return errors.Errorf("systemd has no order %q", order.Job)
	}
	if err != nil {
		return unitFailure(name, order.Job, err)
	}
	if err := b.Sync("/etc"); err != nil {
		return errors.Wrap(err, "sync systemd's links in /etc")
	}
	return b.ReloadUnits(ctx)
}
