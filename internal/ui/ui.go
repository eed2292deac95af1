// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui reports what a run does, to people and to scripts: progress on
// stderr, results on stdout, or events in place of both.
package ui

import "github.com/slipway-k8s/slipway/internal/fault"

// UI is what a phase reports with. It can be used by phases that run side by
// side.
type UI interface {
	// Start opens a phase, which may be inside another one or run beside others.
	// It returns the UI for what that phase says, and the function that ends the
	// phase with its error.
	Start(phase string) (in UI, end func(err error))
	// Skip says that a phase is left out, and why.
	Skip(phase, reason string)
	// Printf says one line of progress: what happens now.
	Printf(format string, args ...any)
	// Nextf says one line for the end of the run: what it made, or what the user
	// can do next. On a terminal, it is shown after the last phase.
	Nextf(format string, args ...any)
	// Warnf says one line that the user should read.
	Warnf(format string, args ...any)
	// Warn says what the user should read, and the remedy: what to do about it.
	// The remedy may be empty.
	Warn(message, remedy string)
	// Result writes what a script wants, such as the join command, to stdout.
	// A phase says before it, with Nextf, what it is. A run does not fail because
	// a result cannot be written: the caller owns the stream, and sees the error
	// there.
	Result(text string)
	// Outcome adds to what the run has made, for programs that read events.
	// People read the same in the text of Result.
	Outcome(o Outcome)
}

// WarnError warns of an error: its text, and what to do about it.
func WarnError(u UI, err error) { u.Warn(err.Error(), fault.Remedy(err)) }
