// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"cmp"
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

func (h *Host) ReloadUnits(ctx context.Context) error { return h.ordered(ctx, "reload") }

// OrderUnit changes a unit's state, unless the test replaces the order.
func (h *Host) OrderUnit(ctx context.Context, order host.UnitOrder, name string) error {
	err := h.ordered(ctx, order.Job+" "+name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil || order.Verb == "" {
		return err
	}
	if instead := h.On.Orders[order]; instead != nil {
		return instead(ctx, name)
	}
	state, err := h.Unit(ctx, name)
	state.UnitFileState = cmp.Or(order.FileState, state.UnitFileState)
	if state.ActiveState = cmp.Or(order.ActiveState, state.ActiveState); order.ActiveState == "active" {
		state.ActiveSince = h.Now()
	}
	h.with(func(has *State) { has.Units[name] = state })
	return err
}
