// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// SetParameter accepts a missing parameter once the plan loads a module, which may bring it.
func (o *overlay) SetParameter(name, value string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := filepath.Clean(host.ProcSys + name)
	now, err := o.readFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(o.modules) > 0 {
		err = nil
	}
	if host.IgnoreForbidden(err) != nil {
		return false, host.Explain("read the kernel parameter", path, err)
	}
	if err == nil && strings.TrimSpace(string(now)) == value {
		return false, nil
	}
	o.nodes[path] = &node{name: filepath.Base(path), mode: 0o644, data: []byte(value + "\n")}
	return true, nil
}

func (o *overlay) LoadModule(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.modules = append(o.modules, name)
	return nil
}

func (o *overlay) Swap() ([]string, error) {
	areas, err := o.SystemReader.Swap()
	o.mu.Lock()
	defer o.mu.Unlock()
	var left []string
	for _, a := range areas {
		if on, planned := o.swap[a]; on || !planned {
			left = append(left, a)
		}
	}
	return left, err
}

func (o *overlay) SwapOff(area string) error {
	o.setSwap(area, false)
	return nil
}

func (o *overlay) SwapOn(area string) error {
	o.setSwap(area, true)
	return nil
}

func (o *overlay) setSwap(area string, on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.swap[area] = on
}

// RestoreContexts does nothing: a plan has no contexts.
func (o *overlay) RestoreContexts(context.Context, []string) error { return nil }

// LookPath finds a program written by the plan, unless the host has it earlier in PATH.
func (o *overlay) LookPath(name string) (string, error) {
	there, err := o.base.LookPath(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if n := o.nodes[path]; n != nil && !n.removed && n.mode&0o111 != 0 {
			return path, nil
		}
		if err == nil && path == there {
			break
		}
	}
	return there, err
}

// ProgramVersion can't run a program that only the plan has written.
func (o *overlay) ProgramVersion(ctx context.Context, path string) (string, error) {
	o.mu.Lock()
	n := o.nodes[filepath.Clean(path)]
	o.mu.Unlock()
	if n != nil {
		return "", host.ErrNotInPlan
	}
	return o.base.ProgramVersion(ctx, path)
}

// Probe succeeds: a plan assumes that a run's waits do.
func (o *overlay) Probe(context.Context, host.Probe) error { return nil }

func (o *overlay) Fetch(context.Context, host.Probe) ([]byte, error) { return nil, host.ErrNotInPlan }

func (o *overlay) Date(context.Context, host.Probe) (time.Time, error) {
	return time.Time{}, host.ErrNotInPlan
}

func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, host.ErrNotInPlan
}

// Answers says no: a plan assumes that a run's look at a lost host finds nobody.
func (o *overlay) Answers(context.Context, netip.AddrPort) (bool, error) { return false, nil }

func (o *overlay) RunProgram(context.Context, []string) error { return host.ErrNotInPlan }

func (o *overlay) ProbeWrite(string) error { return host.ErrNotInPlan }

func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, host.ErrNotInPlan
}

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

// fragment returns the path of the unit's file in the plan, if any.
func (o *overlay) fragment(name string) string {
	for _, dir := range host.UnitDirs() {
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
