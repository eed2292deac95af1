// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fact

import (
	"strings"
	"testing"
)

// Of returns the facts of a line in a test table, where " | " separates them. An empty line has none.
func Of(line string) []string {
	var facts []string
	for f := range strings.SplitSeq(line, " | ") {
		if f = strings.TrimSpace(f); f != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// List fails the test unless there are as many texts as lines, and each text has the facts of its line, separated by " | ", in
// order.
func List(t testing.TB, texts []string, lines ...string) {
	t.Helper()
	if len(texts) != len(lines) {
		t.Errorf("%d texts, want %d:\n%s\nwant facts:\n%s", len(texts), len(lines), strings.Join(texts, "\n"), strings.Join(lines, "\n"))
		return
	}
	for i, line := range lines {
		In(t, texts[i], Of(line)...)
	}
}
