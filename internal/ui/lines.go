// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Lines writes progress as plain lines, each beginning with its phase in
// brackets, which is what scripts and logs of such tools are used to.
type Lines struct {
	*lines

	phase string // empty outside of any
}

// lines is what the phases of a run share.
type lines struct {
	mu       sync.Mutex
	progress io.Writer
	results  io.Writer
}

// NewLines writes progress to progress and results to results.
func NewLines(progress, results io.Writer) *Lines {
	return &Lines{lines: &lines{progress: progress, results: results}}
}

// Start opens a phase. Plain lines say nothing of it until it has something
// to say.
func (l *Lines) Start(phase string) (UI, func(error)) {
	return &Lines{lines: l.lines, phase: phase}, func(error) {}
}

// Skip says that a phase is left out.
func (l *Lines) Skip(phase, reason string) { l.line(phase, "skipped: "+reason) }

// Printf says one line of progress.
func (l *Lines) Printf(format string, args ...any) { l.line(l.phase, fmt.Sprintf(format, args...)) }

// Warnf says one line that the operator should read.
func (l *Lines) Warnf(format string, args ...any) {
	l.line(l.phase, "[WARNING] "+fmt.Sprintf(format, args...))
}

// Result gives text to the results.
func (l *lines) Result(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintln(l.results, text)
}

// Outcome says nothing: its text was given as a Result.
func (l *lines) Outcome(Outcome) {}

func (l *lines) line(phase, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if phase != "" {
		text = "[" + topLevel(phase) + "] " + text
	}
	_, _ = fmt.Fprintln(l.progress, text)
}

// topLevel is the phase that people know: certs of certs/apiserver.
func topLevel(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}
