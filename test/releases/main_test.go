// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Comparing the facts themselves needs compiled release modules, so `make test-full` does that for the lab's releases. This test
// cheaply checks that the inputs of all releases' facts haven't changed.
func TestTablesAreMadeFromTheseInputs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", tableFile))
	if err != nil {
		t.Fatal(err)
	}
	facts, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if facts.String() != string(text) {
		t.Error("the table is not as the program would write it: was it edited by hand?")
	}
	for _, m := range slices.Concat(kubernetes, etcds) {
		version, hash, err := inputs("../..", m)
		if err != nil {
			t.Fatal(err)
		}
		if want := [2]string{version, hash}; version == "" || facts.inputs[m.minor] != want {
			t.Errorf("%s: made from %v, but now there is %v; run: go run ./test/releases -write %s", m.minor, facts.inputs[m.minor], want, m.minor)
		}
	}
}
