// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"
)

const tick = 100 * time.Millisecond

// row is a line of the block: a top-level phase of the workflow, including the phases below it.
type row struct {
	name  string
	since time.Time
	// open has the running phases, this phase and phases below it, in the order of their latest message; said all messages.
	open, said []line
	// worst is the phase's outcome, failed the path of the failed part, and cause its error.
	worst         outcome
	failed, cause string
}

// line is a phase's message; empty if it hasn't said anything.
type line struct{ path, text string }

// outcome is the end of a phase; the worse it is, the greater.
type outcome int

const (
	succeeded outcome = iota
	// stopped is the end of a phase because another failed.
	stopped
	failed
)

// row returns the line that shows path; nil if there's none.
func (s *screen) row(path string) *row {
	i := slices.IndexFunc(s.rows, func(r *row) bool { return path != "" && r.name == topLevel(path) })
	if i < 0 {
		return nil
	}
	return s.rows[i]
}

// say keeps a phase's message, and shows it as the row's current activity.
func (r *row) say(path, text string) {
	r.said = append(r.said, line{path, text})
	if i := slices.IndexFunc(r.open, func(l line) bool { return l.path == path }); i >= 0 {
		r.open = append(slices.Delete(r.open, i, i+1), line{path, strings.ReplaceAll(text, "\n", " ")})
	}
}

// end reports whether path was the row's last running phase. If phases fail inside each other, the innermost ends first: that's
// the failure to show.
func (r *row) end(path string, how outcome, err error) bool {
	r.open = slices.DeleteFunc(r.open, func(l line) bool { return l.path == path })
	if how > r.worst {
		r.worst, r.failed, r.cause = how, path, err.Error()
	}
	return len(r.open) == 0
}

// doing describes the row's current activity. For a phase below the row's, it begins with that phase's name.
func (r *row) doing() string {
	last := r.open[len(r.open)-1]
	child := strings.TrimPrefix(strings.TrimPrefix(last.path, r.name), "/")
	if child != "" && last.text != "" {
		child += ": "
	}
	return child + last.text
}

// details are the messages of the failed phase and its parents.
func (r *row) details() []string {
	var texts []string
	for _, l := range r.said {
		if l.path == r.failed || strings.HasPrefix(r.failed, l.path+"/") {
			texts = append(texts, l.text)
		}
	}
	return texts
}

// draw puts text, already wrapped, above the block.
func (s *screen) draw(text string) {
	if text != "" {
		text += "\n"
		s.shown = true
	}
	_ = s.drawRaw(text)
}

// drawRaw puts text above the block in one write, so that nothing flickers. Before writing more, the writer goes back to the
// block's first line and erases from there.
func (s *screen) drawRaw(text string) error {
	_, _ = s.out.WriteString(text)
	block := s.block()
	for _, l := range block {
		_, _ = s.out.WriteString(l + "\n")
	}
	return s.out.Flush(len(block))
}

// block returns the lines of the running phases, cut to the terminal's width and height: the cursor can't go back over a wrapped
// line, nor to lines outside the screen.
func (s *screen) block() []string {
	if !s.live {
		return nil
	}
	width, height := s.size()
	var lines []string
	for _, r := range s.rows {
		text := fmt.Sprintf("%-*s %6s  %s", nameWidth, r.name, elapsed(r.since), r.doing())
		if width < narrow {
			text = fmt.Sprintf("%s %s  %s", r.name, elapsed(r.since), r.doing())
		}
		text = displaywidth.TruncateString(text, max(0, width-len(indent)-1), "…")
		lines = append(lines, s.style.running(s.frame)+strings.TrimRight(text, " "))
	}
	return lines[max(0, len(lines)-max(0, height-1)):]
}

// startTicks redraws the block until stopTicks.
func (s *screen) startTicks() {
	if s.stop != nil || !s.live {
		return
	}
	stop := make(chan struct{})
	s.stop = stop
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				s.tick(stop)
			}
		}
	}()
}

func (s *screen) stopTicks() {
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

func (s *screen) tick(stop chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == stop { // otherwise it was closed in the meantime
		s.frame++
		s.draw("")
	}
}

func elapsed(since time.Time) string {
	d := time.Since(since)
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// topLevel returns the top of a phase's path: certs for certs/apiserver.
func topLevel(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}
