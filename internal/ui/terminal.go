// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/briandowns/spinner"
)

// tick is how often the live line moves.
const tick = 100 * time.Millisecond

// Terminal shows phases to a person: a live line for the one that runs, a line
// with its time for each that has ended.
type Terminal struct {
	mu      sync.Mutex
	program string
	out     *os.File
	results io.Writer
	spin    *spinner.Spinner
	running []running
}

type running struct {
	path  string
	since time.Time
}

// NewTerminal shows progress on out, which must be a terminal, and writes
// results to results.
func NewTerminal(program string, out *os.File, results io.Writer) *Terminal {
	t := &Terminal{program: program, out: out, results: results}
	// The cursor stays: a run that is killed could not give it back.
	t.spin = spinner.New(spinner.CharSets[14], tick, spinner.WithWriterFile(out), spinner.WithHiddenCursor(false))
	t.spin.PreUpdate = t.refresh
	return t
}

// Program is the name that this program was called by.
func (t *Terminal) Program() string { return t.program }

// Start opens a phase and shows it as running.
func (t *Terminal) Start(phase string) (UI, func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := time.Now()
	t.running = append(t.running, running{phase, since})
	t.spin.Start()
	return t, func(err error) { t.end(phase, since, err) }
}

func (t *Terminal) end(phase string, since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(r running) bool { return r.path == phase })
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	// A child's line says no more than its parent's; only a failed one does.
	if !strings.Contains(phase, "/") || err != nil {
		t.above(fmt.Sprintf("%s %-22s %s", mark, phase, elapsed(since)))
	}
	if len(t.running) == 0 {
		t.spin.Stop()
	}
}

// Skip says that a phase is left out.
func (t *Terminal) Skip(phase, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.above(fmt.Sprintf("- %-22s skipped: %s", phase, reason))
}

// Printf says one line of progress.
func (t *Terminal) Printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.above("    " + fmt.Sprintf(format, args...))
}

// Warnf says one line that the operator should read.
func (t *Terminal) Warnf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.above("  ! " + fmt.Sprintf(format, args...))
}

// Result gives text to the results.
func (t *Terminal) Result(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause(func() { _, _ = fmt.Fprintln(t.results, text) })
}

// Outcome says nothing: its text was given as a Result.
func (t *Terminal) Outcome(Outcome) {}

// above prints a line over the live one.
func (t *Terminal) above(line string) {
	t.pause(func() { _, _ = fmt.Fprintln(t.out, line) })
}

func (t *Terminal) pause(print func()) {
	active := t.spin.Active()
	if active {
		t.spin.Stop()
	}
	print()
	if active {
		t.spin.Start()
	}
}

// refresh runs in the spinner's goroutine just before it draws, with the
// spinner's own lock held: it must not wait for a lock that is held around a
// call of the spinner.
func (t *Terminal) refresh(s *spinner.Spinner) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if n := len(t.running); n > 0 {
		s.Suffix = fmt.Sprintf(" %s %s", t.running[n-1].path, elapsed(t.running[0].since))
	}
}

func elapsed(since time.Time) string {
	return fmt.Sprintf("%.1fs", time.Since(since).Seconds())
}
