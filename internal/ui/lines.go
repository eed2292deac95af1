// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Lines writes progress as plain lines. Each begins with its phase in brackets, as scripts expect of such tools.
type Lines struct {
	*lines

	phase string // empty outside any phase
}

type lines struct {
	mu       sync.Mutex
	progress io.Writer
	results  io.Writer
	depth    int
}

// NewLines writes progress to progress and results to results. A line begins with its top-level phase: certs for certs/apiserver.
func NewLines(progress, results io.Writer) *Lines {
	return &Lines{lines: &lines{progress: progress, results: results, depth: 1}}
}

// ShowParts is for a workflow made of others: lines also begin with the inner workflow's phase.
func (l *lines) ShowParts() { l.depth = 2 }

// Start opens a phase. Plain lines don't mention it until it has something to say.
func (l *Lines) Start(phase string) (UI, func(error)) {
	return &Lines{lines: l.lines, phase: phase}, func(error) {}
}

func (l *Lines) Skip(phase, reason string) { l.line(phase, "skipped: "+reason) }

func (l *Lines) Printf(format string, args ...any) { l.line(l.phase, fmt.Sprintf(format, args...)) }

// Nextf writes its line at once.
func (l *Lines) Nextf(format string, args ...any) { l.Printf(format, args...) }

func (l *Lines) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...), "") }

// Warn writes the remedy on a separate line.
func (l *Lines) Warn(message, remedy string) {
	const warning = "[WARNING] "
	l.line(l.phase, warning+message)
	if remedy != "" {
		l.line(l.phase, warning+"  "+remedy)
	}
}

func (l *lines) Result(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintln(l.results, text)
}

// Outcome does nothing: Result got the text.
func (l *lines) Outcome(Outcome) {}

func (l *lines) line(phase, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A line break inside someone else's text can't make a line look like a phase's.
	text = strings.ReplaceAll(text, "\n", "\n  ")
	if phase != "" {
		names := strings.Split(phase, "/")
		text = "[" + strings.Join(names[:min(l.depth, len(names))], "/") + "] " + text
	}
	_, _ = fmt.Fprintln(l.progress, text)
}
