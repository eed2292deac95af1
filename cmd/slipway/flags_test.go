// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

// TestPhasesNameKnownFlags holds the names in Phase.Flags against the table of flags.
func TestPhasesNameKnownFlags(t *testing.T) {
	checked := 0
	var walk func(workflow string, list []phases.Phase)
	walk = func(workflow string, list []phases.Phase) {
		for _, p := range list {
			fs := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
			new(config.Flags).BindPhase(fs, workflow, p.Flags)
			for _, name := range p.Flags {
				checked++
				if fs.Lookup(name) == nil {
					t.Errorf("phase %s of %s: there is no flag --%s in internal/config/flag_table.go", p.Name, workflow, name)
				}
			}
			walk(workflow, p.Children)
		}
	}
	walk("init", phases.Init())
	walk("join", phases.Join())
	walk("reset", phases.Reset())
	walk("host prepare", (&phases.Prepare{}).Phases())
	walk("host reset", phases.HostReset())
	if checked < 200 {
		t.Errorf("%d names only", checked)
	}
}
