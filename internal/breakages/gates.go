// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// gates finds feature gates that keep a program from starting: unknown gates, gates locked to another value, and gates whose
// requirements are off (#133697, since 1.35).
func (c *checker) gates(where, program string, set map[string]bool) {
	if len(set) == 0 {
		return
	}
	known, refused := c.release.Gates(program), false
	for _, name := range slices.Sorted(maps.Keys(set)) {
		gate, ok := known[name]
		f := fault.Finding{Severity: fault.Error, Subject: where, Field: name, Remedy: "remove the gate"}
		switch {
		case !ok:
			f.Name = "gate-removed"
			f.Message = fmt.Sprintf("%s: %s has no feature gate %s", where, c.programName(program), name)
		case gate.Locked && gate.On != set[name]:
			f.Name = "gate-locked"
			f.Message = fmt.Sprintf("%s: in %s, feature gate %s is locked to %t, and cannot be %t",
				where, c.programName(program), name, gate.On, set[name])
		default:
			continue
		}
		c.add(f)
		refused = true
	}
	if !refused { // like the programs, which look at the others only then
		c.neededGates(where, program, known, set)
	}
}

func (c *checker) neededGates(where, program string, known map[string]releases.Gate, set map[string]bool) {
	on := releases.Enabled(known, set)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		var off []string
		for _, needed := range known[name].Needs {
			if !on[needed] {
				off = append(off, needed)
			}
		}
		if !on[name] || len(off) == 0 {
			continue
		}
		remedy := fmt.Sprintf("set %s=true too, or %s=false", strings.Join(off, "=true and "), name)
		if _, explicit := set[name]; !explicit && set[releases.AllAlpha] {
			remedy = "list the gates that are wanted instead of " + releases.AllAlpha + "; or " + remedy
		}
		c.add(fault.Finding{Name: "gate-dependency", Severity: fault.Error, Subject: where, Field: name + " needs " + strings.Join(off, ", "),
			Message: fmt.Sprintf("%s: in %s, feature gate %s is on and needs %s, which is off", where, c.programName(program), name, strings.Join(off, ", ")),
			Remedy:  remedy})
	}
}
