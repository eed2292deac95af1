// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"
)

// unitPlan is the state of a unit after the planned actions.
type unitPlan struct {
	enabled bool
	acted   bool // started or stopped
	running bool // if acted
}

// Unit implements UnitReader.
func (o *overlay) Unit(ctx context.Context, name string) (UnitState, error) {
	state, err := o.base.Unit(ctx, name)
	o.mu.Lock()
	defer o.mu.Unlock()
	plan, planned := o.units[unitName(name)]
	if !planned {
		return state, err
	}
	state.LoadState = "loaded"
	if plan.enabled {
		state.UnitFileState = "enabled"
	}
	switch {
	case plan.acted && plan.running:
		state.ActiveState, state.SubState, state.Result, state.Restarts = "active", "running", "success", 0
	case plan.acted:
		state.ActiveState, state.SubState, state.MainPID = "inactive", "dead", 0
	}
	return state, nil
}

// Journal implements UnitReader.
func (o *overlay) Journal(ctx context.Context, unit string, since time.Time, last int) ([]JournalEntry, error) {
	return o.base.Journal(ctx, unit, since, last)
}

// ReloadUnits implements UnitWriter.
func (o *overlay) ReloadUnits(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(Action{Verb: Reload})
	return nil
}

// EnableUnit implements UnitWriter.
func (o *overlay) EnableUnit(ctx context.Context, name string) error {
	if state, err := o.Unit(ctx, name); err == nil && state.UnitFileState == "enabled" {
		return nil
	}
	o.act(Enable, name, func(p *unitPlan) { p.enabled = true })
	return nil
}

// StartUnit implements UnitWriter.
func (o *overlay) StartUnit(_ context.Context, name string) error {
	o.act(Start, name, func(p *unitPlan) { p.acted, p.running = true, true })
	return nil
}

// StopUnit implements UnitWriter.
func (o *overlay) StopUnit(_ context.Context, name string) error {
	o.act(Stop, name, func(p *unitPlan) { p.acted, p.running = true, false })
	return nil
}

// RestartUnit implements UnitWriter.
func (o *overlay) RestartUnit(_ context.Context, name string) error {
	o.act(Restart, name, func(p *unitPlan) { p.acted, p.running = true, true })
	return nil
}

// SuspendUnit implements UnitWriter: StopUnit is what lasts.
func (o *overlay) SuspendUnit(context.Context, string) error { return nil }

// KillUnit implements UnitWriter, as SuspendUnit.
func (o *overlay) KillUnit(context.Context, string) error { return nil }

func (o *overlay) act(verb Verb, name string, change func(*unitPlan)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name = unitName(name)
	plan := o.units[name]
	change(&plan)
	o.units[name] = plan
	o.record(Action{Verb: verb, Unit: name})
}
