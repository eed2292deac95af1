// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
)

// initOptions are the flags of `init`, its phases, and the commands that read its configuration.
type initOptions struct {
	config.Flags

	// anyHost says that nothing is done to this host, so that an address it lacks may be made up.
	anyHost bool
	// onePhase says that a phase is run by its own command, maybe for a cluster that exists.
	onePhase bool
}

// joinOptions are the flags of `join` and its phases.
type joinOptions struct{ config.Flags }

// resetOptions are the flags of `reset` and its phases.
type resetOptions struct{ config.Flags }

// upgradeOptions are the flags of `upgrade` and its phases.
type upgradeOptions struct{ config.Flags }

// phaseFlags are the names of the flags of a phase: each phase takes --dry-run.
func phaseFlags(names []string) []string {
	if slices.Contains(names, "dry-run") {
		return names
	}
	return append(slices.Clone(names), "dry-run")
}

// given lists the flags on the command line.
func given(fs *pflag.FlagSet) []string {
	var names []string
	fs.Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
