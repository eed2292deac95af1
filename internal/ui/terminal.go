// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// tick is how often the live line moves.
const tick = 100 * time.Millisecond

// eraseLine goes back to the beginning of the line, and empties it (ECMA-48).
const eraseLine = "\r\x1b[K"

// Terminal shows phases to a person: a live line for the one that runs, a line
// with its time for each that has ended.
type Terminal struct {
	mu      sync.Mutex
	out     io.Writer
	results io.Writer
	running []running
	ticks   int
	// stop ends the live line; nil without one.
	stop chan struct{}
}

type running struct {
	path  string
	since time.Time
}

// NewTerminal shows progress on out, which is a terminal, and writes results to
// results.
func NewTerminal(out, results io.Writer) *Terminal {
	return &Terminal{out: out, results: results}
}

// Start opens a phase and shows it as running.
func (t *Terminal) Start(phase string) (UI, func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := time.Now()
	t.running = append(t.running, running{phase, since})
	if t.stop == nil {
		t.stop = make(chan struct{})
		go t.live(t.stop)
	}
	return t, func(err error) { t.end(phase, since, err) }
}

func (t *Terminal) end(phase string, since time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(r running) bool { return r.path == phase })
	if len(t.running) == 0 {
		close(t.stop)
		t.stop = nil
		_, _ = io.WriteString(t.out, eraseLine)
	}
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	// A child's line says no more than its parent's; only a failed one does.
	if !strings.Contains(phase, "/") || err != nil {
		t.above(fmt.Sprintf("%s %-22s %s", mark, phase, elapsed(since)))
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
	_, _ = io.WriteString(t.out, eraseLine)
	_, _ = fmt.Fprintln(t.results, text)
}

// Outcome says nothing: its text was given as a Result.
func (t *Terminal) Outcome(Outcome) {}

// above prints a line in the place of the live one, which is drawn again below
// it at the next tick.
func (t *Terminal) above(line string) {
	_, _ = fmt.Fprintln(t.out, eraseLine+line)
}

// live draws the live line until stop is closed.
func (t *Terminal) live(stop chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			t.draw(stop)
		}
	}
}

func (t *Terminal) draw(stop chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop != stop { // it was closed meanwhile
		return
	}
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	t.ticks++
	_, _ = fmt.Fprintf(t.out, "%s%c %s %s", eraseLine, frames[t.ticks%len(frames)], t.running[len(t.running)-1].path, elapsed(t.running[0].since))
}

func elapsed(since time.Time) string {
	return fmt.Sprintf("%.1fs", time.Since(since).Seconds())
}
