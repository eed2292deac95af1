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

// tick is how often the block is drawn.
const tick = 100 * time.Millisecond

// row is a line of the block: a phase of the workflow, with those below it.
type row struct {
	name  string
	since time.Time
	// open are this phase and those below it that run, in the order in which
	// they last said something.
	open []*activity
	said []line
	// worst is how the phase ended, failed the path of what failed in it, and
	// cause its error.
	worst         outcome
	failed, cause string
}

// activity is a phase that runs.
type activity struct {
	path, doing string
}

// line is what a phase said.
type line struct{ path, text string }

// outcome is how a phase ended; the worse one is the greater.
type outcome int

const (
	succeeded outcome = iota
	// stopped is the end of a phase because another one failed.
	stopped
	failed
)

// row is the line that shows path; nil if there is none.
func (s *screen) row(path string) *row {
	i := slices.IndexFunc(s.rows, func(r *row) bool { return path != "" && r.name == topLevel(path) })
	if i < 0 {
		return nil
	}
	return s.rows[i]
}

// say keeps what the phase says, and shows it as what the row does.
func (r *row) say(path, text string) {
	r.said = append(r.said, line{path, text})
	i := slices.IndexFunc(r.open, func(a *activity) bool { return a.path == path })
	if i >= 0 {
		a := r.open[i]
		a.doing = strings.ReplaceAll(text, "\n", " ")
		r.open = append(slices.Delete(r.open, i, i+1), a)
	}
}

// end reports whether path was the last phase of the row that ran. Of phases
// that fail inside each other, the innermost one ends first: it is the one to
// show.
func (r *row) end(path string, how outcome, err error) bool {
	r.open = slices.DeleteFunc(r.open, func(a *activity) bool { return a.path == path })
	if how > r.worst {
		r.worst, r.failed, r.cause = how, path, err.Error()
	}
	return len(r.open) == 0
}

// doing is what the row does now. What a phase below it does begins with that
// phase's name.
func (r *row) doing() string {
	a := r.open[len(r.open)-1]
	child := strings.TrimPrefix(strings.TrimPrefix(a.path, r.name), "/")
	switch {
	case child == "":
		return a.doing
	case a.doing == "":
		return child
	}
	return child + ": " + a.doing
}

// details are the lines that the phase said which failed, or the phases that it
// is part of.
func (r *row) details() []string {
	var texts []string
	for _, l := range r.said {
		if l.path == r.failed || strings.HasPrefix(r.failed, l.path+"/") {
			texts = append(texts, l.text)
		}
	}
	return texts
}

// draw puts text, which is wrapped, above the block.
func (s *screen) draw(text string) {
	if text != "" {
		text += "\n"
		s.shown = true
	}
	_ = s.drawRaw(text)
}

// drawRaw puts text above the block in one write, so that nothing flickers. The
// writer goes back to the first line of the block, and erases from there, before
// it writes more.
func (s *screen) drawRaw(text string) error {
	_, _ = s.out.WriteString(text)
	block := s.block()
	for _, l := range block {
		_, _ = s.out.WriteString(l + "\n")
	}
	return s.out.Flush(len(block))
}

// block are the lines of the phases that run, cut to the width, as the cursor
// cannot go back over a line that the terminal has wrapped. Nor can it go back
// to what has left the screen.
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

// startTicks draws the block from now on, and stopTicks ends that.
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

// topLevel is the phase of the workflow that a phase is part of: certs for
// certs/apiserver.
func topLevel(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}
