// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package workflow runs phases: each one as soon as the phases that it needs have ended. It knows nothing of
// Kubernetes. What the phases work with is their environment, a type of the caller's.
package workflow

import (
	"context"
	"crypto"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Environment is what phases work with, as far as this package needs to know it.
type Environment[E any] interface {
	// Start reports that a phase begins. It returns the environment for that phase and the function that ends the
	// phase with its error.
	Start(phase string) (in E, end func(error))
	// Skipped reports that a phase is left out, and why.
	Skipped(phase, reason string)
}

// Phase is one step of a workflow. It compares the desired with the actual state and acts on the difference only,
// so that it can run again after any interruption.
type Phase[E Environment[E]] struct {
	// Name is the word for --skip-phases and for the subcommand.
	Name    string
	Summary string
	// Flags are the names of the flags that the phase's own command takes.
	Flags []string
	// Run does the work. A phase with Children has none.
	Run func(ctx context.Context, env E) error
	// RunWithKey replaces Run in a phase that may need a new private key, which takes a tenth of a second or more
	// to generate. NeedsKey reports, before anything runs, whether it does; then a key is generated while other
	// phases run. A phase that gets nil and needs a key after all generates it itself.
	RunWithKey func(ctx context.Context, env E, key crypto.Signer) error
	NeedsKey   func(env E) bool
	// Children make up a phase. A parent that has Flags can be run as a whole by its subcommand "all".
	Children []Phase[E]
	// Whole says that the children have no commands of their own.
	Whole bool
	// SideBySide says that the children do not wait for each other.
	SideBySide bool
	// Needs names the phases that must have ended before this one begins: PHASE or PHASE/CHILD, anywhere in the
	// workflow. A phase that names none waits for the one before it, unless its parent says SideBySide.
	Needs []string
	// Print returns what the phase would install, for --print-manifest; nil in a phase without that flag.
	Print func(env E) ([]byte, error)
	// Skip returns why the environment makes this phase unnecessary, or an empty string.
	Skip func(env E) (reason string)
}

// Needing returns p with the names of the phases that it waits for.
func (p Phase[E]) Needing(paths ...string) Phase[E] {
	p.Needs = paths
	return p
}

// Paths lists the names that --skip-phases takes, children as PARENT/CHILD.
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

// Error is the error of a phase. It names the innermost phase, once.
type Error struct {
	// Phase is the path of the phase: NAME or PARENT/CHILD.
	Phase string
	err   error
}

func (e *Error) Error() string { return "phase " + e.Phase + ": " + e.err.Error() }

// Unwrap returns the error that the phase returned.
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
