// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
)

// shows compares a complete output with a golden file.
func shows(t *testing.T, name, output string) {
	t.Helper()
	golden.Check(t, fixture.Path("testdata/golden/said", name+".txt"), output)
}

// line has facts of a single line.
type line []string

// mute is a test that notes its failures, and does not show them.
type mute struct {
	testing.TB
	failed bool
}

func (m *mute) Errorf(string, ...any) { m.failed = true }

// count is the number of lines that have all facts.
func (l line) count(t *testing.T, text string) (n int) {
	t.Helper()
	for one := range strings.Lines(text) {
		m := &mute{TB: t}
		if fact.In(m, one, l...); !m.failed {
			n++
		}
	}
	return n
}

// once checks that there is exactly one line with the facts of each.
func once(t *testing.T, text string, lines ...line) {
	t.Helper()
	for _, l := range lines {
		if n := l.count(t, text); n != 1 {
			t.Errorf("%d lines have %q in\n%s", n, []string(l), text)
		}
	}
}

// foundAs is what a check has found.
type foundAs struct {
	name  string   // the severity and the check, such as "error EtcdQuorum"
	facts []string // of the message
	list  string   // what the message ends with, for example all names that it lists
}

// checkFindings checks that these were found, in this order, and nothing else.
func checkFindings(t *testing.T, found []preflight.Finding, want ...foundAs) {
	t.Helper()
	if len(found) != len(want) {
		t.Errorf("found %q, want %q", inWords(found), want)
		return
	}
	for i, f := range found {
		if name := severityOf(f) + " " + f.Check; name != want[i].name {
			t.Errorf("finding %d is %q, want %q", i, inWords(found)[i], want[i].name)
		}
		fact.In(t, f.Message, want[i].facts...)
		if list := want[i].list; list != "" && !strings.HasSuffix(f.Message, ": "+list) {
			t.Errorf("finding %d is %q, whose list should be %q", i, f.Message, list)
		}
	}
}

func severityOf(f preflight.Finding) string {
	return map[preflight.Severity]string{preflight.Error: "error", preflight.Warning: "warning", preflight.Unasked: "unchecked"}[f.Severity]
}

// after is the next line of the same phase after the only one that has a text, for example the remedy of a warning.
func after(t *testing.T, text, has string) string {
	t.Helper()
	before, rest, found := strings.Cut(text, has)
	if !found || strings.Contains(rest, has) {
		t.Errorf("not once %q in\n%s", has, text)
	}
	phase, _, _ := strings.Cut(before[strings.LastIndex(before, "\n")+1:], "]")
	for one := range strings.Lines(rest) {
		if strings.HasPrefix(one, phase+"]") {
			return one
		}
	}
	return ""
}

// showsRun runs phases one after another, and holds all that they say against a golden file.
func (s *stage) showsRun(t *testing.T, name string, workflow ...Phase) {
	t.Helper()
	s.said.Reset()
	fatal(t, Run(t.Context(), s.Env, workflow, Options{Serial: true}))
	shows(t, name, s.said.String())
}
