// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGroup: if phases in two groups have the same names, each waits for phases of its own workflow.
func TestGroup(t *testing.T) {
	j := &journal{}
	inner := func(of string) []phase {
		return []phase{
			j.phase("first", nil),
			{Name: "parent", SideBySide: true, Children: []phase{j.phase(of+"-child", nil).Needing("last"), j.phase("other", nil)}},
			j.phase("last", nil).Needing("first"),
		}
	}
	workflow := []phase{Group("a", "", inner("a")), Group("b", "", inner("b"))}
	if err := Run(t.Context(), newEnv(), workflow, Options[*env]{Serial: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{"first", "other", "last", "a-child", "first", "other", "last", "b-child"}
	if diff := cmp.Diff(want, j.ran); diff != "" {
		t.Errorf("ran, -want +got:\n%s", diff)
	}
}

// TestIn: each part of a phase gets the other environment.
func TestIn(t *testing.T) {
	outer, other := newEnv(), newEnv()
	var got []*env
	note := func(e *env) { got = append(got, e) }
	p := phase{
		Name: "p", Run: func(_ context.Context, e *env) error { note(e); return nil },
		Skip: func(e *env) string { note(e); return "" }, Print: func(e *env) ([]byte, error) { note(e); return nil, nil },
		NeedsSpare: func(e *env) bool { note(e); return false },
	}
	parent := phase{Name: "parent", Children: []phase{p}}
	in := WithEnvironment([]phase{parent}, func(*env) *env { return other })[0].Children[0]
	_, _ = in.Run(t.Context(), outer), in.Skip(outer)
	_, _ = in.Print(outer)
	in.NeedsSpare(outer)
	for i, e := range got {
		if e != other {
			t.Errorf("%d got the workflow's environment", i)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d calls", len(got))
	}
}
