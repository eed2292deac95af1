// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui tells people and scripts what a run does: progress to stderr,
// results to stdout, or events instead of both.
package ui

// UI is what a phase may say.
type UI interface {
	// Start opens a phase, perhaps inside of another or beside others. It
	// returns the UI for what that phase says, and the function that ends it
	// with its error.
	Start(phase string) (in UI, end func(err error))
	// Skip says that a phase is left out, and why.
	Skip(phase, reason string)
	// Printf says one line of progress.
	Printf(format string, args ...any)
	// Warnf says one line that the operator should read.
	Warnf(format string, args ...any)
	// Result gives what a script wants, such as the join command, to stdout. A
	// run does not end because it cannot be written: the maker of the UI gave
	// it the stream, and learns there that something is lost.
	Result(text string)
	// Outcome adds what the run has brought about to what it did before, for a
	// program that reads events; people read it in the text of Result.
	Outcome(o Outcome)
}
