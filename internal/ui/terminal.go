// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
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

// closingText is for the end of a run: a line for people, or a result.
type closingText struct {
	text   string
	result bool
}

// outcome distinguishes a phase's own failure from its end because of another phase. Failure shows the first failure at the end;
// the phases it ends, and the failed phase's parents, return it wrapped.
func (s *screen) outcome(err error) outcome {
	switch {
	case err == nil:
		return succeeded
	case s.failure == "":
		s.failure = err.Error()
		return failed
	case errors.Is(err, context.Canceled), strings.Contains(err.Error(), s.failure):
		return stopped
	}
	return failed
}

// close replaces a phase's live line with its final line. A phase without messages gets none: it found nothing to do, only had
// something to say at the end of the run, or was only planned.
func (s *screen) close(r *row) {
	s.rows = slices.DeleteFunc(s.rows, func(other *row) bool { return other == r })
	if r.worst == succeeded && len(r.said) == 0 && !s.verbose {
		return
	}
	name := r.name
	if r.worst == failed {
		name = r.failed
	}
	text := s.style.ended(r.worst) + fmt.Sprintf("%-*s %6s", nameWidth, name, elapsed(r.since))
	switch r.worst {
	case stopped:
		text += " stopped"
	case failed:
		text += s.explain(r)
	}
	s.draw(text)
}

// explain returns the details of a failed phase, and its error, unless the run ends with that error.
func (s *screen) explain(r *row) string {
	const margin = indent + hanging
	var b strings.Builder
	if !s.verbose {
		for _, text := range r.details() {
			b.WriteString("\n" + margin + s.wrap(text, margin))
		}
	}
	if r.cause != s.failure {
		b.WriteString("\n" + margin + s.wrap(printable(r.cause), margin))
	}
	return b.String()
}

// Nextf keeps one line for the end of the run.
func (t *Terminal) Nextf(format string, args ...any) {
	t.atEnd(closingText{text: fmt.Sprintf(format, args...)})
}

// Result keeps text for the end of the run. Outside a phase, it's written at once.
func (t *Terminal) Result(text string) {
	if t.path == "" {
		_, _ = fmt.Fprintln(t.results, text)
		return
	}
	t.atEnd(closingText{text: text, result: true})
}

// Outcome does nothing: Result got the text.
func (s *screen) Outcome(Outcome) {}

func (t *Terminal) atEnd(c closingText) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = append(t.closing, c)
}

// Close erases the block and shows the texts kept for the end of the run. Results aren't wrapped, so that they can be copied.
func (s *screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTicks()
	s.rows = nil
	apart := s.shown // the next text comes after an empty line
	for i, c := range s.closing {
		if apart || c.result && i > 0 {
			_ = s.drawRaw("\n")
		}
		if apart = c.result; c.result {
			_, _ = fmt.Fprintln(s.results, c.text)
		} else {
			s.draw(s.wrapLines(c.text))
		}
	}
	s.closing = nil
	s.draw("")
}

func (s *screen) Failure(message, remedy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.wrapLines(message) + s.remedy(remedy, hanging)
	if s.shown {
		text = "\n" + text
	}
	s.draw(text)
}
