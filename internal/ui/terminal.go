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

// Terminal shows a run to a person. A block at the bottom of the screen has a line for each running phase: its name, time and
// current activity. A phase that ends leaves one line above the block, followed by its messages if it failed.
type Terminal struct {
	*screen

	path string // the phase using this UI; empty outside any
}

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
	failure string        // the first failed phase's error
	warned  map[string]bool
	shown   bool // something stands above, so the end of the run is set apart
	closing []closingText
}

// NewTerminal shows a run on out, which is a terminal, and writes results to results. Close ends it.
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
	// Without cursor movement, there's no block, only the lines that stay.
	term := os.Getenv("TERM")
	live := term != "" && term != "dumb"
	return &Terminal{screen: &screen{
		results: results, size: size, out: cwriter.New(out), warned: map[string]bool{},
		live: live, style: style{colors: live && os.Getenv("NO_COLOR") == ""}, // https://no-color.org
	}}
}

// ShowDetails shows phases' messages at once, rather than only after a failure.
func (s *screen) ShowDetails() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verbose = true
}

// Start opens a phase. A phase below another shares the outermost phase's line.
func (t *Terminal) Start(phase string) (UI, func(error)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.row(phase)
	if r == nil {
		r = &row{name: topLevel(phase), since: time.Now()}
		t.rows = append(t.rows, r)
	}
	r.open = append(r.open, line{path: phase})
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

func (t *Terminal) Skip(phase, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verbose {
		t.draw(t.style.skipped() + t.wrap(phase+"  skipped: "+printable(reason), indent))
	}
}

// Printf describes the phase's current activity.
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

func (t *Terminal) Warnf(format string, args ...any) { t.Warn(fmt.Sprintf(format, args...), "") }

// Warn shows a warning only once in a run.
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

// Write shows others' output to the terminal, such as the API client's log, above the block.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Map(printableRune, string(p))
	if len(s.rows) > 0 {
		text = strings.TrimSuffix(text, "\n") + "\n"
	}
	return len(p), s.drawRaw(text)
}

func (t *Terminal) prefix() string {
	if t.path == "" {
		return ""
	}
	return t.path + ": "
}

// remedy formats a remedy as a separate line, below text indented by margin.
func (s *screen) remedy(text, margin string) string {
	if text == "" {
		return ""
	}
	const arrow = "→ "
	return "\n" + margin + arrow + s.wrap(printable(text), margin+strings.Repeat(" ", len([]rune(arrow))))
}
