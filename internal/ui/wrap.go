// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"

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
	// Below leastWidth, wrapping doesn't help.
	leastWidth = 20
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
			case used+1+w > width && width >= leastWidth:
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
