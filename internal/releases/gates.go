// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package releases

import (
	"maps"
	"slices"
	"strings"
)

// Stages that flags such as AllAlpha switch as a group.
const (
	alpha = "alpha"
	beta  = "beta"
)

// Gate is a program's feature gate in one release, unless --emulated-version says otherwise.
type Gate struct {
	Stage  string // alpha, beta, ga or deprecated
	On     bool   // by default
	Locked bool   // can't be set to another value
	// Needs lists the gates that must be on if this gate is.
	Needs []string
}

// Gate looks up a program's feature gate.
func (r Release) Gate(program, name string) (Gate, bool) {
	state := r.state("gate", program, name)
	if state == "" {
		return Gate{}, false
	}
	parts := strings.Split(state, ",")
	g := Gate{Stage: parts[0], On: parts[1] == "on", Locked: slices.Contains(parts, "locked")}
	if needs, ok := strings.CutPrefix(parts[len(parts)-1], "needs="); ok {
		g.Needs = strings.Split(needs, "+")
	}
	return g, true
}

// Gates returns a program's feature gates by name.
func (r Release) Gates(program string) map[string]Gate {
	gates := map[string]Gate{}
	for key := range parse().rows {
		if key.kind != "gate" {
			continue
		}
		if g, ok := r.Gate(program, key.name); ok {
			gates[key.name] = g
		}
	}
	return gates
}

// Names of gates that set many others.
const (
	AllAlpha = "AllAlpha"
	AllBeta  = "AllBeta"
)

// Enabled returns which gates are on if these are set: the defaults, then AllAlpha and AllBeta, then each gate's own setting.
func Enabled(gates map[string]Gate, set map[string]bool) map[string]bool {
	on := map[string]bool{}
	for name, g := range gates {
		on[name] = g.On
		if all, ok := set[AllAlpha]; ok && g.Stage == alpha {
			on[name] = all
		}
		if all, ok := set[AllBeta]; ok && g.Stage == beta {
			on[name] = all
		}
	}
	maps.Copy(on, set)
	return on
}
