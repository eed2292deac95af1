// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

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
