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

// unitPlan is the state of a unit after the planned actions.
type unitPlan struct {
	fileState string // if planned
	acted     bool   // started or stopped
	running   bool   // if acted
}

// Unit implements UnitReader.
func (o *overlay) Unit(ctx context.Context, name string) (host.UnitState, error) {
	state, err := o.base.Unit(ctx, name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if fragment := o.fragment(host.UnitName(name)); fragment != "" {
		state.LoadState, state.Fragment, state.Current = "loaded", fragment, true
	}
	plan, planned := o.units[host.UnitName(name)]
	if n := o.nodes[state.Program]; n != nil && state.ActiveState == "active" {
		state.Replaced = !plan.acted
	}
	if !planned {
		return state, err
	}
	state.LoadState = "loaded"
	state.UnitFileState = cmp.Or(plan.fileState, state.UnitFileState)
	switch {
	case plan.acted && plan.running:
		state.ActiveState, state.SubState, state.Result, state.Restarts = "active", "running", "success", 0
	case plan.acted:
		state.ActiveState, state.SubState, state.MainPID = "inactive", "dead", 0
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

func (o *overlay) EnableUnit(ctx context.Context, name string) error {
	o.changeFiles(ctx, name, func(now string) bool { return now != "enabled" }, "enabled")
	return nil
}

func (o *overlay) DisableUnit(ctx context.Context, name string) error {
	o.changeFiles(ctx, name, func(now string) bool { return now == "enabled" }, "disabled")
	return nil
}

func (o *overlay) MaskUnit(ctx context.Context, name string) error {
	o.changeFiles(ctx, name, func(now string) bool { return now != "masked" }, "masked")
	return nil
}

func (o *overlay) UnmaskUnit(ctx context.Context, name string) error {
	o.changeFiles(ctx, name, func(now string) bool { return now == "masked" }, "static")
	return nil
}

// changeFiles plans a change in the state of a unit's files, if it's needed or systemd can't be asked.
func (o *overlay) changeFiles(ctx context.Context, name string, needed func(now string) bool, then string) {
	if state, err := o.Unit(ctx, name); err == nil && !needed(state.UnitFileState) {
		return
	}
	o.act(name, func(p *unitPlan) { p.fileState = then })
}

func (o *overlay) StartUnit(_ context.Context, name string) error {
	o.act(name, func(p *unitPlan) { p.acted, p.running = true, true })
	return nil
}

func (o *overlay) StopUnit(_ context.Context, name string) error {
	o.act(name, func(p *unitPlan) { p.acted, p.running = true, false })
	return nil
}

func (o *overlay) RestartUnit(_ context.Context, name string) error {
	o.act(name, func(p *unitPlan) { p.acted, p.running = true, true })
	return nil
}

// SuspendUnit does nothing: only StopUnit lasts.
func (o *overlay) SuspendUnit(context.Context, string) error { return nil }

// KillUnit does nothing either.
func (o *overlay) KillUnit(context.Context, string) error { return nil }

func (o *overlay) act(name string, change func(*unitPlan)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name = host.UnitName(name)
	plan := o.units[name]
	change(&plan)
	o.units[name] = plan
}
