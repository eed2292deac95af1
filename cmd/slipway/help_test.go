// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp asks every command for its help, which must come on standard output
// and name the command and each of its flags.
func TestHelp(t *testing.T) {
	var paths [][]string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		paths = append(paths, strings.Fields(cmd.CommandPath())[1:])
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot("slipway", streams{}, nil))
	if len(paths) < 50 {
		t.Errorf("%d commands only", len(paths))
	}
	for _, path := range paths {
		var out, errs bytes.Buffer
		root := newRoot("slipway", streams{out: &out, err: &errs}, nil)
		root.SetArgs(append(path, "--help"))
		if err := root.ExecuteContext(t.Context()); err != nil || errs.Len() > 0 {
			t.Errorf("%v --help: error %v, %s", path, err, errs.String())
		}
		want := strings.Join(append([]string{"slipway"}, path...), " ")
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "--help") {
			t.Errorf("%v --help says\n%s", path, out.String())
		}
	}
}
