// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/slipway-k8s/slipway/internal/host"
)

// EnableUnit leaves an enabled unit alone.
func (b *Bus) EnableUnit(ctx context.Context, name string) error {
	return b.changeFiles(ctx, "enable", name, func(s host.UnitState) bool { return s.UnitFileState != "enabled" },
		func(ctx context.Context, conn *dbus.Conn, name string) (int, error) {
			_, changes, err := conn.EnableUnitFilesContext(ctx, []string{name}, false, false)
			return len(changes), err
		})
}

func (b *Bus) DisableUnit(ctx context.Context, name string) error {
	return b.changeFiles(ctx, "disable", name, func(s host.UnitState) bool { return s.UnitFileState == "enabled" },
		func(ctx context.Context, conn *dbus.Conn, name string) (int, error) {
			changes, err := conn.DisableUnitFilesContext(ctx, []string{name}, false)
			return len(changes), err
		})
}

func (b *Bus) MaskUnit(ctx context.Context, name string) error {
	return b.changeFiles(ctx, "mask", name, func(s host.UnitState) bool { return s.UnitFileState != "masked" },
		func(ctx context.Context, conn *dbus.Conn, name string) (int, error) {
			changes, err := conn.MaskUnitFilesContext(ctx, []string{name}, false, false)
			return len(changes), err
		})
}

func (b *Bus) UnmaskUnit(ctx context.Context, name string) error {
	return b.changeFiles(ctx, "unmask", name, func(s host.UnitState) bool { return s.UnitFileState == "masked" },
		func(ctx context.Context, conn *dbus.Conn, name string) (int, error) {
			changes, err := conn.UnmaskUnitFilesContext(ctx, []string{name}, false)
			return len(changes), err
		})
}

// changeFiles changes the links by which systemd knows a unit's state, if needed.
func (b *Bus) changeFiles(ctx context.Context, job, name string, needed func(host.UnitState) bool,
	change func(context.Context, *dbus.Conn, string) (int, error)) error {
	name = host.UnitName(name)
	ctx, cancel := bounded(ctx)
	defer cancel()
	state, err := b.Unit(ctx, name)
	if err != nil || !needed(state) {
		return err
	}
	conn, err := b.get(ctx)
	if err != nil {
		return err
	}
	changes, err := change(ctx, conn, name)
	if err != nil {
		return unitFailure(name, job, err)
	}
	if changes == 0 {
		return nil
	}
	return b.ReloadUnits(ctx)
}
