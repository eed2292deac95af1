// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
)

// Verb is what an Action does.
type Verb string

// The verbs of a plan.
const (
	Write   Verb = "write"
	Mkdir   Verb = "mkdir"
	Chmod   Verb = "chmod"
	Chown   Verb = "chown" // of a directory with all that is in it
	Remove  Verb = "remove"
	Reload  Verb = "reload units"
	Enable  Verb = "enable unit"
	Start   Verb = "start unit"
	Stop    Verb = "stop unit"
	Restart Verb = "restart unit"
	Pull    Verb = "pull image"
)

// Action is one change: what a dry run leaves out, or what a run has done. One
// of Path, Unit and Image says to what, except for Reload.
type Action struct {
	Verb  Verb
	Path  string
	Unit  string
	Image string
	// Mode is that of a file or folder afterwards.
	Mode fs.FileMode
	// UID and GID are the new owner's.
	UID, GID int
	// Data is a file's content. A secret one is not kept: nobody can print it
	// by mistake.
	Data   []byte
	Secret bool
	// Name is what is neither of these: a Pod, or what the kernel's network holds.
	Name string
	// Entries are what a removed folder held at its top, folders with a slash;
	// of a folder in which a mount stays, what was beside that.
	Entries []string
	// Created tells that there was no such file before.
	Created bool
}

// String says what would be done, without a file's content.
func (a Action) String() string {
	switch a.Verb {
	case Write, Mkdir, Chmod:
		return fmt.Sprintf("%s %s %04o", a.Verb, a.Path, a.Mode.Perm())
	case Chown:
		return fmt.Sprintf("%s %s %d:%d", a.Verb, a.Path, a.UID, a.GID)
	default:
		return strings.TrimSpace(fmt.Sprintf("%s %s", a.Verb, a.Path+a.Unit+a.Image+a.Name))
	}
}

// NewOverlay returns a host for a dry run. Reads are answered from what the
// run has written, then from base. Writes and unit actions change only the
// memory, and each that would change something is handed to record, in order;
// record must not call the overlay. What the real host refuses to do, to a
// symlink or in a missing folder, the overlay refuses too.
//
// Of files that this user may not read the overlay knows nothing: writing one
// is recorded as a change, since it may be one, and reading one is an error
// that says to run as root. So a plan never shows, for example, a new CA in
// the place of one that is there.
//
// Probes succeed, and units are in the state that the actions on them would
// bring about. The other questions, those to the container runtime among
// them, go to base.
func NewOverlay(base Host, record func(Action)) Host {
	return &overlay{
		Host: base, record: record,
		nodes: map[string]*node{}, owners: map[string]Owner{}, units: map[string]unitPlan{}, unmounted: map[string]bool{},
	}
}

type overlay struct {
	Host
	record func(Action)

	mu     sync.Mutex
	nodes  map[string]*node // by cleaned path
	owners map[string]Owner // by cleaned path
	units  map[string]unitPlan

	unmounted map[string]bool
}

// unitPlan is what the actions so far have done to a unit.
type unitPlan struct {
	enabled      bool
	acted        bool // started or stopped
	shallBeAlive bool // if acted
}

// Unit implements Units.
func (o *overlay) Unit(ctx context.Context, name string) (UnitState, error) {
	state, err := o.Host.Unit(ctx, name)
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
	case plan.acted && plan.shallBeAlive:
		state.ActiveState, state.SubState, state.Result, state.Restarts = "active", "running", "success", 0
	case plan.acted:
		state.ActiveState, state.SubState, state.MainPID = "inactive", "dead", 0
	}
	return state, nil
}

// ReloadUnits implements Units.
func (o *overlay) ReloadUnits(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(Action{Verb: Reload})
	return nil
}

// EnableUnit implements Units.
func (o *overlay) EnableUnit(ctx context.Context, name string) error {
	if state, err := o.Unit(ctx, name); err == nil && state.UnitFileState == "enabled" {
		return nil
	}
	o.act(Enable, name, func(p *unitPlan) { p.enabled = true })
	return nil
}

// StartUnit implements Units.
func (o *overlay) StartUnit(_ context.Context, name string) error {
	o.act(Start, name, func(p *unitPlan) { p.acted, p.shallBeAlive = true, true })
	return nil
}

// StopUnit implements Units.
func (o *overlay) StopUnit(_ context.Context, name string) error {
	o.act(Stop, name, func(p *unitPlan) { p.acted, p.shallBeAlive = true, false })
	return nil
}

// RestartUnit implements Units.
func (o *overlay) RestartUnit(_ context.Context, name string) error {
	o.act(Restart, name, func(p *unitPlan) { p.acted, p.shallBeAlive = true, true })
	return nil
}

func (o *overlay) act(verb Verb, name string, change func(*unitPlan)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name = unitName(name)
	plan := o.units[name]
	change(&plan)
	o.units[name] = plan
	o.record(Action{Verb: verb, Unit: name})
}

// PullImage implements Runtime.
func (o *overlay) PullImage(_ context.Context, _, image string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record(Action{Verb: Pull, Image: image})
	return nil
}

// StopContainer implements Runtime. Nothing that is planned stops one.
func (o *overlay) StopContainer(context.Context, string, string, time.Duration) error {
	return errors.New("a dry run stops no container")
}

// RemoveExited implements Runtime. Nothing that is planned removes one.
func (o *overlay) RemoveExited(context.Context, string, string, string) error {
	return errors.New("a dry run removes no container")
}

// Probe implements Facts.
func (o *overlay) Probe(context.Context, Probe) error { return nil }

// EffectiveUID implements Facts: a plan is of what root would do, and says
// where it does not know what root would see.
func (o *overlay) EffectiveUID() int { return 0 }
