// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui reports a run. Phases write to a UI: Lines is for logs and scripts, Events for programs (JSON), Terminal for people.
// Timeline wraps any of them and records when each phase ran. docs/design/terminal-output.md has the reasons.
package ui

import (
	"fmt"
	"path"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// UI is how a phase reports. Phases that run side by side can share it.
type UI interface {
	// Start opens a phase, which may be inside another or run beside others. It returns the UI for that phase's messages, and a
	// function that ends the phase with its error.
	Start(phase string) (in UI, end func(err error))
	// Skip reports that a phase is left out, and why.
	Skip(phase, reason string)
	// Printf writes one line of progress: the current activity.
	Printf(format string, args ...any)
	// Nextf writes a line for the run's end: its result, or a next step. A terminal shows it after the last phase.
	Nextf(format string, args ...any)
	// Warnf writes one line the user should read.
	Warnf(format string, args ...any)
	// Warn writes a message the user should read, and a remedy, which may be empty.
	Warn(message, remedy string)
	// Result writes text for scripts, such as the join command, to stdout. Before it, the phase describes it with Nextf. A run
	// doesn't fail because a result can't be written: the caller owns the stream, and sees the error there.
	Result(text string)
	// Outcome adds to the run's results for programs that read events. For people, Result's text says the same.
	Outcome(o Outcome)
}

// WarnError warns of err, with its remedy.
func WarnError(u UI, err error) { u.Warn(err.Error(), fault.Remedy(err)) }

// Kept is a file or object that differs from Slipway's version, and is left unchanged. It contains no secret.
type Kept struct {
	// Path is set for a file, the others for an object.
	Path, Kind, Namespace, Name string
	// Summary describes the difference in one line.
	Summary string
	// Remedy says how to see the whole difference, and how to get Slipway's version.
	Remedy string
	// Now and Ours are the complete texts to compare.
	Now, Ours string
}

// Title names the file or object.
func (k Kept) Title() string {
	if k.Path != "" {
		return k.Path
	}
	return k.Kind + " " + path.Join(k.Namespace, k.Name)
}

// Warn says that the file or object stays, and why.
func (k Kept) Warn(u UI) {
	u.Warn(fmt.Sprintf("keeping %s, which differs from what this configuration makes: %s", k.Title(), k.Summary), k.Remedy)
}

// SayKept reports k to u: a plan shows it as a step, every other UI warns.
func SayKept(u UI, k Kept) {
	if plan, ok := u.(interface{ Kept(k Kept) }); ok {
		plan.Kept(k)
		return
	}
	k.Warn(u)
}
