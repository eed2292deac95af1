// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Lines writes progress as plain lines. Each begins with its phase in brackets,
// as scripts that read the output of such tools expect.
type Lines struct {
	*lines

	phase string // empty outside of any
}

// lines is what the phases of a run share.
type lines struct {
	mu       sync.Mutex
	progress io.Writer
	results  io.Writer
	depth    int
}

// NewLines writes progress to progress and results to results. A line begins with the phase of the workflow that its phase is
// part of: certs for certs/apiserver.
func NewLines(progress, results io.Writer) *Lines {
	return &Lines{lines: &lines{progress: progress, results: results, depth: 1}}
}

// ShowParts is for a workflow that is made of others: lines also begin with the phase of the inner one.
func (l *lines) ShowParts() { l.depth = 2 }

// Start opens a phase. Plain lines say nothing of it until it has something to say.
func (l *Lines) Start(phase string) (UI, func(error)) {
	return &Lines{lines: l.lines, phase: phase}, func(error) {}
}

// Skip says that a phase is left out.
func (l *Lines) Skip(phase, reason string) { l.line(phase, "skipped: "+reason) }

// Printf says one line of progress.
func (l *Lines) Printf(format string, args ...any) { l.line(l.phase, fmt.Sprintf(format, args...)) }

// Nextf says one line about what the run made, or what comes next.
func (l *Lines) Nextf(format string, args ...any) { l.Printf(format, args...) }

// Warnf says one line that the user should read.
func (l *Lines) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...), "") }

// Warn says what the user should read, and the remedy on a line of its own.
func (l *Lines) Warn(message, remedy string) {
	const warning = "[WARNING] "
	l.line(l.phase, warning+message)
	if remedy != "" {
		l.line(l.phase, warning+"  "+remedy)
	}
}

// Result writes text to the results.
func (l *lines) Result(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintln(l.results, text)
}

// Outcome does nothing: its text was given to Result.
func (l *lines) Outcome(Outcome) {}

func (l *lines) line(phase, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A line that others have put into a message doesn't look like one of a phase.
	text = strings.ReplaceAll(text, "\n", "\n  ")
	if phase != "" {
		text = "[" + l.shown(phase) + "] " + text
	}
	_, _ = fmt.Fprintln(l.progress, text)
}

// shown is as much of a phase's path as lines begin with.
func (l *lines) shown(path string) string {
	names := strings.Split(path, "/")
	return strings.Join(names[:min(l.depth, len(names))], "/")
}
