// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package workflow runs a list of Phases (Run), each as soon as the phases it needs have ended. Group and WithEnvironment make
// workflows out of others. It knows nothing of Kubernetes: phases work with their environment, a type chosen by the caller.
// docs/design/parallel-phases.md has the order.
package workflow

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Environment is the part of the phases' environment known to this package.
type Environment[E any] interface {
	// Start reports that a phase begins. It returns the environment for that phase and a function that ends the phase with its
	// error.
	Start(phase string) (in E, end func(error))
	Skipped(phase, reason string)
}

// Phase is one step of a workflow. It compares the desired with the actual state and acts only on the difference, so it can run
// again after any interruption.
type Phase[E Environment[E]] struct {
	// Name is used by --skip-phases and as the subcommand.
	Name    string
	Summary string
	// Flags are the names of the flags of the phase's own command.
	Flags []string
	// Run does the work; nil in a phase with Children.
	Run func(ctx context.Context, env E) error
	// NeedsSpare reports, before anything runs, whether the phase needs a spare (Options.NewSpare). A phase that gets none but needs
	// one after all makes it itself.
	NeedsSpare func(env E) bool
	// Children make up a phase. If the parent has Flags, its subcommand "all" runs it as a whole.
	Children []Phase[E]
	// Whole means the children have no commands.
	Whole bool
	// SideBySide means the children don't wait for each other.
	SideBySide bool
	// Needs names the phases that must have ended before this phase begins: PHASE or PHASE/CHILD, anywhere in the workflow. Without
	// Needs, a phase waits for the phase before it, unless its parent is SideBySide.
	Needs []string
	// Print returns the manifest the phase would install, for --print-manifest; nil in a phase without that flag.
	Print func(env E) ([]byte, error)
	// Skip returns why the environment makes this phase unnecessary; empty if it doesn't.
	Skip func(env E) (reason string)
}

// Needing returns p with Needs set.
func (p Phase[E]) Needing(paths ...string) Phase[E] {
	p.Needs = paths
	return p
}

// Paths lists the names for --skip-phases, children as PARENT/CHILD.
func Paths[E Environment[E]](phases []Phase[E]) []string {
	var paths []string
	for _, p := range phases {
		paths = append(paths, p.Name)
		for _, child := range Paths(p.Children) {
			paths = append(paths, p.Name+"/"+child)
		}
	}
	return paths
}

// Error is a phase's error. It names the innermost phase, once.
type Error struct {
	// Phase is the phase's path: NAME or PARENT/CHILD.
	Phase string
	err   error
}

func (e *Error) Error() string { return "phase " + e.Phase + ": " + e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

func inPhase(err error, path string) error {
	var inner *Error
	if err == nil || errors.As(err, &inner) {
		return err
	}
	return &Error{path, err}
}

func checkNames[E Environment[E]](phases []Phase[E], names []string) error {
	known := Paths(phases)
	var unknown []string
	for _, name := range names {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return errors.Errorf("skip-phases: unknown phase %s; the phases are %s",
			strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	return nil
}
