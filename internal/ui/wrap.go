// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/morikuni/aec"
)

const (
	// indent is as wide as a mark; hanging is the additional margin below a line.
	indent  = "   "
	hanging = "  "
	// nameWidth is the width of the phases' column; kubelet-wait-bootstrap is the longest name.
	nameWidth = 22
	// Below the width narrow, the live lines have no room for columns.
	narrow = 60
	// Below minWidth, wrapping doesn't help.
	minWidth = 20
)

// wrap breaks text between words. Each line but the first begins with margin; the caller leaves as much space before the first.
func (s *screen) wrap(text, margin string) string {
	width, _ := s.size()
	width -= displaywidth.String(margin)
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line, used := "", 0
		for i, word := range words(paragraph) {
			w := displaywidth.String(word)
			switch {
			case i == 0:
				line, used = word, w
			case used+1+w > width && width >= minWidth:
				lines = append(lines, line)
				line, used = word, w
			default:
				line += " " + word
				used += 1 + w
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"+margin)
}

// words returns text in parts; lines may be broken between them. A command in backticks is one word, so that it can be copied.
func words(text string) []string {
	inCommand := false
	var list []string
	for i, word := range strings.Split(text, " ") {
		if inCommand && i > 0 {
			list[len(list)-1] += " " + word
		} else {
			list = append(list, word)
		}
		inCommand = inCommand != (strings.Count(word, "`")%2 == 1)
	}
	return list
}

// wrapLines wraps each line of text with its own indentation. If there are several, continuation lines are indented more, to show
// where the next line begins.
func (s *screen) wrapLines(text string) string {
	lines, more := strings.Split(printable(text), "\n"), ""
	if len(lines) > 1 {
		more = hanging
	}
	for i, l := range lines {
		words := strings.TrimLeft(l, " ")
		margin := l[:len(l)-len(words)]
		lines[i] = margin + s.wrap(words, margin+more)
	}
	return strings.Join(lines, "\n")
}

// style makes the marks at the beginning of lines.
type style struct{ colors bool }

func (s style) mark(mark string, color aec.ANSI) string {
	if s.colors {
		mark = color.Apply(mark)
	}
	return " " + mark + " "
}

func (s style) warning() string { return s.mark("!", aec.YellowF) }

func (s style) skipped() string { return s.mark("-", aec.LightBlackF) }

func (s style) ended(how outcome) string {
	switch how {
	case failed:
		return s.mark("✗", aec.RedF)
	case stopped:
		return s.skipped()
	}
	return s.mark("✓", aec.GreenF)
}

func (s style) running(frame int) string {
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return s.mark(string(frames[frame%len(frames)]), aec.CyanF)
}

// printable leaves out control characters, because a terminal would act on them: text may come from a container's log, or from
// the API, where a worker writes what its Node runs.
func printable(text string) string {
	return strings.Map(printableRune, strings.ReplaceAll(text, "\t", " "))
}

// oneLine makes text printable, and a single line, so that foreign text can't look like this program's lines.
func oneLine(text string) string { return strings.Join(strings.Fields(printable(text)), " ") }

func printableRune(r rune) rune {
	if r != '\n' && r != '\t' && unicode.IsControl(r) {
		return -1
	}
	return r
}

// NewPrintable returns a writer that leaves out control characters, except line breaks and tabs.
func NewPrintable(to io.Writer) io.Writer { return &printableWriter{to: to} }

type printableWriter struct {
	mu   sync.Mutex
	to   io.Writer
	rest []byte // the beginning of a character
}

func (w *printableWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.rest, p...)
	whole := len(text)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			whole = i
		}
	}
	w.rest = bytes.Clone(text[whole:])
	if _, err := w.to.Write(bytes.Map(printableRune, text[:whole])); err != nil {
		return 0, err
	}
	return len(p), nil
}

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
