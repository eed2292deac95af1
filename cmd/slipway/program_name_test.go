// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

// TestCommandsInMessages checks the form in which messages name this program's commands: in any other form, a user who calls it
// by another name would still read slipway.
func TestCommandsInMessages(t *testing.T) {
	var commands []string
	for _, c := range newRoot("slipway", cli.Streams{}, nil).Commands() {
		commands = append(commands, "slipway "+c.Name())
	}
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if strings.HasSuffix(path, "internal/support/support.go") {
			return nil // not a message of this program
		}
		for _, text := range literals(t, path) {
			plain := cli.Shown("\x00", text)
			found += strings.Count(plain, "\x00")
			for _, command := range commands {
				if strings.Contains(plain, command) {
					t.Errorf("%s: %q names a command without a backquote before it", path, text)
				}
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("found %d commands in messages, %v", found, err)
	}
}

func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			out = append(out, text)
		}
		return true
	})
	return out
}
