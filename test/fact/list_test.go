// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fact

import "testing"

func TestList(t *testing.T) {
	texts := []string{"[ERROR Port]: port 6443 is held by nginx", "[WARNING Swap]: swap is on"}
	for name, c := range map[string]struct {
		lines []string
		fails bool
	}{
		"all":                   {lines: []string{"[ERROR Port] | 6443 | nginx", "[WARNING Swap]"}},
		"one lacks a fact":      {lines: []string{"[ERROR Port] | 8443", "[WARNING Swap]"}, fails: true},
		"another order":         {lines: []string{"[WARNING Swap]", "[ERROR Port]"}, fails: true},
		"one too few":           {lines: []string{"[ERROR Port]"}, fails: true},
		"one too many":          {lines: []string{"[ERROR Port]", "[WARNING Swap]", ""}, fails: true},
		"none wanted, but some": {fails: true},
	} {
		r := &recorder{}
		List(r, texts, c.lines...)
		if len(r.failed) > 0 != c.fails {
			t.Errorf("%s: failed %q, want %t", name, r.failed, c.fails)
		}
	}
	if facts := Of(" | a | b c | "); len(facts) != 2 || facts[0] != "a" || facts[1] != "b c" || Of("") != nil {
		t.Errorf("facts %q", facts)
	}
}
