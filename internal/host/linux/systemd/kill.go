// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// reapTime is more than systemd needs to notice a killed process, reapCheck is how often it's asked.
	reapTime  = 2 * time.Second
	reapCheck = 10 * time.Millisecond
)

func (b *Bus) SuspendUnit(ctx context.Context, name string) error {
	return b.signal(ctx, "suspend", name, unix.SIGSTOP)
}

// KillUnit returns when systemd has noticed: a unit stopped before that counts as failed.
func (b *Bus) KillUnit(ctx context.Context, name string) error {
	if err := b.signal(ctx, "kill", name, unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	for {
		state, err := b.Unit(ctx, name)
		if err != nil || state.MainPID == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return &host.UnitError{Unit: host.UnitName(name), Job: "kill", Result: host.ResultUnknown, State: state, Err: context.Cause(ctx)}
		case <-time.After(reapCheck):
		}
	}
}

func (b *Bus) signal(ctx context.Context, job, name string, signal unix.Signal) error {
	name = host.UnitName(name)
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := b.get(ctx)
	if err != nil {
		return err
	}
	if err := conn.KillUnitWithTarget(ctx, name, dbus.Main, int32(signal)); err != nil {
		return unitFailure(name, job, err)
	}
	return nil
}
