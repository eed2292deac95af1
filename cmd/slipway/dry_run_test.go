// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOnlyEnvAsksForDryRun: a phase or a command that asks whether this is a dry run acts differently in one, so its plan differs
// from its run. internal/config carries the user's choice, and env.go acts on it.
func TestOnlyEnvAsksForDryRun(t *testing.T) {
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "test" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || path == "../../internal/config"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == "../../cmd/slipway/env/env.go":
			return nil
		}
		files++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		for _, found := range dryRunQuestions(file) {
			t.Errorf("%s asks for a dry run: give mode or parts in cmd/slipway/env/env.go what differs", set.Position(found))
		}
		return nil
	})
	if err != nil || files < 200 {
		t.Errorf("read %d files: %v", files, err)
	}
}

// dryRunQuestions finds the places where a file reads a variable or a field for dry runs, reads the flag by its name, or looks at
// a mode's type. A flag may be bound to a field, and a field be set.
func dryRunQuestions(file *ast.File) []token.Pos {
	var found []token.Pos
	set := map[ast.Node]bool{}
	allow := func(e ast.Expr) {
		if field, ok := e.(*ast.SelectorExpr); ok {
			set[field.Sel] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				allow(n.X)
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				allow(e)
			}
		case *ast.Ident:
			if strings.EqualFold(n.Name, "dryRun") && !set[n] {
				found = append(found, n.Pos())
			}
		case *ast.CallExpr:
			if readsFlag(n) {
				found = append(found, n.Pos())
			}
		case *ast.TypeAssertExpr:
			if isMode(n.Type) {
				found = append(found, n.Pos())
			}
		case *ast.CaseClause:
			if slices.ContainsFunc(n.List, isMode) {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

func isMode(of ast.Expr) bool {
	if qualified, ok := of.(*ast.SelectorExpr); ok {
		of = qualified.Sel
	}
	name, ok := of.(*ast.Ident)
	return ok && (name.Name == "Acting" || name.Name == "Planning")
}

func readsFlag(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	name, ok := call.Args[0].(*ast.BasicLit)
	return ok && name.Value == `"dry-run"` && slices.Contains([]string{"Changed", "Flag", "GetBool", "Lookup", "Set"}, f.Sel.Name)
}

// TestDryRunQuestions makes sure that the test above can fail.
func TestDryRunQuestions(t *testing.T) {
	for code, want := range map[string]int{
		`if o.DryRun { return }`:                                             1,
		`if node.dryRun || dryRun { return }`:                                2,
		`load(facts, o.DryRun)`:                                              1,
		`yes, _ := cmd.Flags().GetBool("dry-run")`:                           1,
		`if f := fs.Lookup("dry-run"); f != nil {}`:                          1,
		`_, plans := m.(env.Planning)`:                                       1,
		`switch m.(type) { case Acting: }`:                                   1,
		`fs.BoolVar(&o.DryRun, "dry-run", false, "show what would be done")`: 0,
		`fs.Bool("dry-run", false, "show what would be done")`:               0,
		`names := []string{"config", "dry-run"}`:                             0,
		`f.DryRun = value`:                                                   0,
		`self.DryRun = o.DryRun`:                                             1,
		`dryRun := o.plan`:                                                   1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf("package p\nfunc f() { %s }\n", code), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := dryRunQuestions(file); len(got) != want {
			t.Errorf("%s: %d questions, want %d", code, len(got), want)
		}
	}
}
