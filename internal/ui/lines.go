// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Lines writes progress as plain lines, each beginning with its phase in
// brackets, which is what scripts and logs of such tools are used to.
type Lines struct {
	mu       sync.Mutex
	program  string
	progress io.Writer
	results  io.Writer
	phases   []string
}

// NewLines writes progress to progress and results to results.
func NewLines(program string, progress, results io.Writer) *Lines {
	return &Lines{program: program, progress: progress, results: results}
}

// Program is the name that this program was called by.
func (l *Lines) Program() string { return l.program }

// Start opens a phase. Plain lines say nothing of it until it has something
// to say.
func (l *Lines) Start(phase string) func(error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, phase)
	return func(error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.phases = slices.DeleteFunc(l.phases, func(p string) bool { return p == phase })
	}
}

// Skip says that a phase is left out.
func (l *Lines) Skip(phase, reason string) { l.line(topLevel(phase), "skipped: "+reason) }

// Printf says one line of progress.
func (l *Lines) Printf(format string, args ...any) {
	l.line(l.current(), fmt.Sprintf(format, args...))
}

// Warnf says one line that the operator should read.
func (l *Lines) Warnf(format string, args ...any) {
	l.line(l.current(), "[WARNING] "+fmt.Sprintf(format, args...))
}

// Result gives text to the results.
func (l *Lines) Result(text string) { _, _ = fmt.Fprintln(l.results, text) }

func (l *Lines) current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.phases) == 0 {
		return ""
	}
	return topLevel(l.phases[len(l.phases)-1])
}

func (l *Lines) line(phase, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if phase != "" {
		text = "[" + phase + "] " + text
	}
	_, _ = fmt.Fprintln(l.progress, text)
}

// topLevel is the phase that people know: certs of certs/apiserver.
func topLevel(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}
