// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// unitPlan is a unit's UnitFileState and ActiveState after the planned orders; empty if they stay.
type unitPlan struct{ fileState, activeState string }

func (o *overlay) Unit(ctx context.Context, name string) (host.UnitState, error) {
	state, err := o.base.Unit(ctx, name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if fragment := o.fragment(host.UnitName(name)); fragment != "" {
		state.LoadState, state.Fragment, state.Current = "loaded", fragment, true
	}
	plan, planned := o.units[host.UnitName(name)]
	if n := o.nodes[state.Program]; n != nil && state.ActiveState == "active" {
		state.Replaced = plan.activeState == ""
	}
	if !planned {
		return state, err
	}
	state.LoadState = "loaded"
	state.UnitFileState = cmp.Or(plan.fileState, state.UnitFileState)
	switch state.ActiveState = cmp.Or(plan.activeState, state.ActiveState); plan.activeState {
	case "active":
		state.SubState, state.Result, state.Restarts = "running", "success", 0
	case "inactive":
		state.SubState, state.MainPID = "dead", 0
	}
	return state, nil
}

// fragment returns the path of the unit's file that the plan writes, if any. The directories are systemd.unit(5)'s, in order of
// precedence.
func (o *overlay) fragment(name string) string {
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"} {
		path := filepath.Join(dir, name)
		if n := o.nodes[path]; n != nil && !n.removed {
			return path
		}
	}
	return ""
}

func (o *overlay) Journal(ctx context.Context, unit string, since time.Time, last int) ([]host.JournalEntry, error) {
	return o.base.Journal(ctx, unit, since, last)
}

func (o *overlay) ReloadUnits(context.Context) error { return nil }

// OrderUnit plans an order, unless systemd says it's unneeded.
func (o *overlay) OrderUnit(ctx context.Context, order host.UnitOrder, name string) error {
	if order.Verb == "" || !needed(ctx, o, order, name) {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	name = host.UnitName(name)
	plan := o.units[name]
	o.units[name] = unitPlan{cmp.Or(order.FileState, plan.fileState), cmp.Or(order.ActiveState, plan.activeState)}
	return nil
}

// needed reports whether an order changes anything, as far as systemd can be asked.
func needed(ctx context.Context, units host.UnitReader, order host.UnitOrder, name string) bool {
	if order.FileState == "" {
		return true
	}
	state, err := units.Unit(ctx, name)
	return err != nil || order.Needed(state.UnitFileState)
}
