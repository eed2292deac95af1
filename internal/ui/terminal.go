// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// Terminal shows a run to a person. A block at the bottom of the screen has a
// line for each phase that runs: its name, its time and what it does. A phase
// that ends leaves one line above the block. If it failed, what it said follows.
type Terminal struct {
	*screen

	path string // of the phase that uses this UI; empty outside of any
}

// screen is what the phases of a run share.
type screen struct {
	results io.Writer
	size    func() (width, height int)
	style   style
	live    bool

	mu      sync.Mutex
	verbose bool
	out     *cwriter.Writer
	rows    []*row
	frame   int
	stop    chan struct{} // ends the ticks; nil while nothing runs
	failure string        // what the first phase that failed failed with
	warned  map[string]bool
	shown   bool // something stands above: what comes at the end goes apart from it
	closing []closingText
}

// NewTerminal shows a run on out, which is a terminal, and writes results to
// results. Close ends it.
func NewTerminal(out *os.File, results io.Writer) *Terminal {
	size := func() (int, int) {
		width, height, err := cwriter.GetSize(int(out.Fd()))
		if err != nil || width == 0 || height == 0 { // as on a serial console
			return 80, 24
		}
		return width, height
	}
	return newTerminal(out, size, results)
}

func newTerminal(out io.Writer, size func() (int, int), results io.Writer) *Terminal {
	// What cannot move the cursor gets the lines that stay, and no block.
	term := os.Getenv("TERM")
	live := term != "" && term != "dumb"
	return &Terminal{screen: &screen{
		results: results, size: size, out: cwriter.New(out), warned: map[string]bool{},
		live: live, style: style{colors: live && os.Getenv("NO_COLOR") == ""}, // https://no-color.org
	}}
}

// ShowDetails shows what phases say as they say it, not only if they fail.
func (s *screen) ShowDetails() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verbose = true
}

// Start opens a phase. One below another shares the line of the outermost.
func (t *Terminal) Start(phase string) (UI, func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.row(phase)
	if r == nil {
		r = &row{name: topLevel(phase), since: time.Now()}
		t.rows = append(t.rows, r)
	}
	r.open = append(r.open, &activity{path: phase})
	t.startTicks()
	return &Terminal{t.screen, phase}, func(err error) { t.end(phase, err) }
}

func (t *Terminal) end(phase string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.row(phase); r != nil && r.end(phase, t.outcome(err), err) {
		t.close(r)
	}
	if len(t.rows) == 0 {
		t.stopTicks()
	}
	t.draw("")
}

// Skip says that a phase is left out.
func (t *Terminal) Skip(phase, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verbose {
		t.draw(t.style.skipped() + t.wrap(phase+"  skipped: "+printable(reason), indent))
	}
}

// Printf says what the phase does now.
func (t *Terminal) Printf(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...))
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.row(t.path)
	if r != nil {
		r.say(t.path, text)
	}
	if r == nil || t.verbose {
		t.draw(indent + t.wrap(t.prefix()+text, indent+hanging))
	}
}

// Warnf says one line that the user should read.
func (t *Terminal) Warnf(format string, args ...any) { t.Warn(fmt.Sprintf(format, args...), "") }

// Warn says what the user should read, once in a run.
func (t *Terminal) Warn(message, remedy string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := message + "\n" + remedy
	if t.warned[key] {
		return
	}
	t.warned[key] = true
	t.draw(t.style.warning() + t.wrap(t.prefix()+printable(message), indent) + t.remedy(remedy, indent))
}

// Write shows what others write to the terminal, such as the log of the API
// client, above the block.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Map(printableRune, string(p))
	if len(s.rows) > 0 {
		text = strings.TrimSuffix(text, "\n") + "\n"
	}
	return len(p), s.drawRaw(text)
}

// prefix says which phase speaks.
func (t *Terminal) prefix() string {
	if t.path == "" {
		return ""
	}
	return t.path + ": "
}

// remedy is a line of its own for what to do about a problem, below text that
// is indented by margin.
func (s *screen) remedy(text, margin string) string {
	if text == "" {
		return ""
	}
	const arrow = "→ "
	return "\n" + margin + arrow + s.wrap(printable(text), margin+strings.Repeat(" ", len([]rune(arrow))))
}
