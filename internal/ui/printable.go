// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// printable leaves out control characters, because a terminal would act on them: text may come from a container's log, or from
// the API, where a worker writes what its Node runs.
func printable(text string) string {
	return strings.Map(printableRune, strings.ReplaceAll(text, "\t", " "))
}

// OneLine makes text printable, and a single line, so that foreign text can't look like this program's lines.
func OneLine(text string) string { return strings.Join(strings.Fields(printable(text)), " ") }

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
