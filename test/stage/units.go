// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (h *Host) Unit(ctx context.Context, name string) (host.UnitState, error) {
	if err := h.fails("Unit"); err != nil {
		return host.UnitState{}, err
	}
	if h.On.Unit != nil {
		return h.On.Unit(ctx, name)
	}
	state := host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	h.with(func(has *State) {
		if known, there := has.Units[name]; there {
			state = known
		}
	})
	return state, nil
}

func (h *Host) Journal(_ context.Context, unit string, since time.Time, _ int) (entries []host.JournalEntry, err error) {
	for _, e := range h.Has.Journal {
		if unit == kubelet && !e.Time.Before(since) {
			entries = append(entries, e)
		}
	}
	return entries, h.fails("Journal")
}

type unitOrder func(ctx context.Context, name string) error

// unit carries out an order that changes a unit's state, unless the test replaces it.
func (h *Host) unit(ctx context.Context, verb, name string, instead unitOrder, change func(*host.UnitState)) error {
	err := h.ordered(ctx, verb+" "+name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || instead == nil && change == nil {
		return err
	}
	if instead != nil {
		return instead(ctx, name)
	}
	state, err := h.Unit(ctx, name)
	change(&state)
	h.with(func(has *State) { has.Units[name] = state })
	return err
}

func (h *Host) starts(s *host.UnitState) { s.ActiveState, s.ActiveSince = "active", h.Now() }

func (h *Host) ReloadUnits(ctx context.Context) error { return h.ordered(ctx, "reload") }

func (h *Host) EnableUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "enable", name, h.On.EnableUnit, func(s *host.UnitState) { s.UnitFileState = "enabled" })
}

func (h *Host) StartUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "start", name, h.On.StartUnit, h.starts)
}

func (h *Host) StopUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "stop", name, h.On.StopUnit, func(s *host.UnitState) { s.ActiveState = "inactive" })
}

func (h *Host) RestartUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "restart", name, h.On.RestartUnit, h.starts)
}

func (h *Host) DisableUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "disable", name, nil, func(s *host.UnitState) { s.UnitFileState = "disabled" })
}

func (h *Host) MaskUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "mask", name, nil, func(s *host.UnitState) { s.UnitFileState = "masked" })
}

func (h *Host) UnmaskUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "unmask", name, nil, func(s *host.UnitState) { s.UnitFileState = "static" })
}

func (h *Host) SuspendUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "suspend", name, nil, nil)
}

func (h *Host) KillUnit(ctx context.Context, name string) error {
	return h.unit(ctx, "kill", name, nil, nil)
}
