// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
)

func (s *Stage) SaidOnce(t *testing.T, lines ...Line) {
	t.Helper()
	Once(t, s.Said.String(), lines...)
}

func Fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Shows compares a complete output with a golden file.
func Shows(t *testing.T, name, output string) {
	t.Helper()
	golden.Check(t, fixture.Path("testdata/golden/said", name+".txt"), output)
}

// Line has facts of a single line.
type Line []string

// mute is a test that notes its failures without showing them.
type mute struct {
	testing.TB
	failed bool
}

func (m *mute) Errorf(string, ...any) { m.failed = true }

// Count returns the number of lines that have all facts.
func (l Line) Count(t *testing.T, text string) (n int) {
	t.Helper()
	for one := range strings.Lines(text) {
		m := &mute{TB: t}
		if fact.In(m, one, l...); !m.failed {
			n++
		}
	}
	return n
}

// Once checks that exactly one line has the facts of each.
func Once(t *testing.T, text string, lines ...Line) {
	t.Helper()
	for _, l := range lines {
		if n := l.Count(t, text); n != 1 {
			t.Errorf("%d lines have %q in\n%s", n, []string(l), text)
		}
	}
}

// FoundAs describes a check's finding.
type FoundAs struct {
	Name  string   // the severity and the check, such as "error EtcdQuorum"
	Facts []string // of the message
	List  string   // the end of the message, for example all names it lists
}

// CheckFindings checks for exactly these findings, in this order.
func CheckFindings(t *testing.T, found []fault.Finding, want ...FoundAs) {
	t.Helper()
	if len(found) != len(want) {
		t.Errorf("found %q, want %q", InWords(found), want)
		return
	}
	for i, f := range found {
		if name := string(f.Severity) + " " + f.Name; name != want[i].Name {
			t.Errorf("finding %d is %q, want %q", i, InWords(found)[i], want[i].Name)
		}
		fact.In(t, f.Message, want[i].Facts...)
		if list := want[i].List; list != "" && !strings.HasSuffix(f.Message, ": "+list) {
			t.Errorf("finding %d is %q, whose list should be %q", i, f.Message, list)
		}
	}
}

// After returns the phase's next line after the only line that has a text, for example a warning's remedy.
func After(t *testing.T, text, has string) string {
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

// ShowsRun runs phases one after another, and compares their output with a golden file.
func (s *Stage) ShowsRun(t *testing.T, name string, workflow ...step.Phase) {
	t.Helper()
	s.Said.Reset()
	Fatal(t, step.Run(t.Context(), s.Env, workflow, step.Options{Serial: true}))
	Shows(t, name, s.Said.String())
}

func InWords(found []fault.Finding) []string {
	var list []string
	for _, f := range found {
		list = append(list, string(f.Severity)+" "+f.Name+": "+f.Message)
	}
	return list
}

func Message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
