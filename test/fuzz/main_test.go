// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestOnlyTimeIsUp(t *testing.T) {
	const progress = "fuzz: elapsed: 31s, execs: 10711 (0/sec), new interesting: 0 (total: 203)\n"
	for name, test := range map[string]struct {
		out  string
		want bool
	}{
		"the engine's race": {progress + "--- FAIL: FuzzToken (31.15s)\n    context deadline exceeded\nFAIL\n", true},
		"a failing input": {progress + "--- FAIL: FuzzToken (3.1s)\n    --- FAIL: FuzzToken (0.00s)\n        token_test.go:9: no\n\n" +
			"    Failing input written to testdata/fuzz/FuzzToken/1\nFAIL\n", false},
		"the target's own deadline": {progress + "--- FAIL: FuzzToken (3.1s)\n    --- FAIL: FuzzToken (0.00s)\n        x_test.go:9: context deadline exceeded\nFAIL\n", false},
		"a hang":                    {progress + "--- FAIL: FuzzToken (31.1s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n", false},
	} {
		if got := onlyTimeIsUp(test.out); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
