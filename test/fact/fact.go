// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package fact checks the facts in a message, an error or an output: a path, a number, a name, a flag, a command. The message's
// wording is free to change; complete outputs are in golden files.
package fact

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// In fails the test unless the text has every fact, as separate words: the fact "/etc/a" isn't in "/etc/ab", nor "1" in "10". It
// refuses a sentence as a fact, unless it's the program's input or another program's output, which belongs between backquotes or
// single quotes.
func In(t testing.TB, text string, facts ...string) {
	t.Helper()
	for _, f := range facts {
		if words := sentence(f); words != "" {
			t.Fatalf("%q is not a fact, as %q may be worded otherwise: use a path, a number, a name or a command in backquotes", f, words)
		}
		if !has(text, f) {
			t.Errorf("the text lacks %q:\n%s", f, text)
		}
	}
}

// NotIn fails the test if the text has any of the facts.
func NotIn(t testing.TB, text string, facts ...string) {
	t.Helper()
	for _, f := range facts {
		if has(text, f) {
			t.Errorf("the text has %q:\n%s", f, text)
		}
	}
}

// Error fails the test unless err, with its remedy, has every fact. Without facts, there must be no error.
func Error(t testing.TB, err error, facts ...string) {
	t.Helper()
	switch {
	case err == nil && len(facts) > 0:
		t.Errorf("no error, want one with %q", facts)
	case err != nil && len(facts) == 0:
		t.Errorf("error: %v", err)
	case err != nil:
		In(t, err.Error()+"; "+fault.Remedy(err), facts...)
	}
}

// has finds a fact whose ends aren't within a word.
func has(text, fact string) bool {
	if fact == "" {
		return false
	}
	first, _ := utf8.DecodeRuneInString(fact)
	last, _ := utf8.DecodeLastRuneInString(fact)
	for from := 0; ; {
		at := strings.Index(text[from:], fact)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(fact):])
		cut := inWord(before) && inWord(first) || inWord(last) && inWord(after)
		if !cut {
			return true
		}
		from = at + 1
	}
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

var (
	quoted = regexp.MustCompile("`[^`]*`|'[^']*'")
	prose  = regexp.MustCompile(`(?:^|[\s(])([A-Za-z]?[a-z]+,? [a-z]+,? [a-z]+)(?:$|[\s,.:;)])`)
)

// sentence returns three plain words in a row, if a fact has them outside of quotes.
func sentence(fact string) string {
	found := prose.FindStringSubmatch(quoted.ReplaceAllString(fact, "…"))
	if found == nil {
		return ""
	}
	return found[1]
}
