// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestSample(t *testing.T) {
	const total, n = 30, 5
	t.Setenv(Variable, "")
	t.Setenv(Seed, "a")
	first := Sample(t, n, total)
	if len(first) != n || !slices.IsSorted(first) || len(slices.Compact(slices.Clone(first))) != n {
		t.Errorf("a sample of %d: %v", n, first)
	}
	if again := Sample(t, n, total); !slices.Equal(first, again) {
		t.Errorf("the same seed chooses %v, then %v", first, again)
	}
	seen := map[int]bool{}
	for commit := range 100 {
		t.Setenv(Seed, fmt.Sprint(commit))
		for _, at := range Sample(t, n, total) {
			seen[at] = true
		}
	}
	if len(seen) != total {
		t.Errorf("100 commits cover %d of %d", len(seen), total)
	}
	if all := Sample(t, total+1, total); len(all) != total {
		t.Errorf("of %d, there are %d to choose", total, len(all))
	}
	t.Setenv(Variable, "full")
	if all := Sample(t, n, total); len(all) != total {
		t.Errorf("the full tier runs %d of %d", len(all), total)
	}
}

// TestStandIns: each call of OnlyFull names a test that exists and runs in the core tier.
func TestStandIns(t *testing.T) {
	found, packages := 0, map[string][]*ast.File{}
	for _, file := range fixture.GoFiles(t) {
		data, err := os.ReadFile(fixture.Path(file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte("tier.OnlyFull(")) || path.Dir(file) == "test/tier" {
			continue
		}
		for _, call := range calls(parsed(t, file)[0], "OnlyFull") {
			name, in := literal(call.Args[1]), path.Dir(file)
			if !strings.HasPrefix(name, "Test") {
				in, name, _ = strings.Cut(name, ".")
			}
			if packages[in] == nil {
				packages[in] = parsed(t, in+"/*_test.go")
			}
			if why := notCore(name, packages[in]); why != "" {
				t.Errorf("%s: OnlyFull names %q of %q, %s", file, name, in, why)
			}
			found++
		}
	}
	if found < 20 {
		t.Errorf("%d tests are only in the full tier", found)
	}
}

// parsed returns the files that match a pattern below the project's directory.
func parsed(t *testing.T, pattern string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(fixture.Path(pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// notCore says why the core tier doesn't run a test or a row of a package; it's empty if the core tier does.
func notCore(name string, files []*ast.File) string {
	name, row, _ := strings.Cut(name, "/")
	for _, file := range files {
		for _, d := range file.Decls {
			test, is := d.(*ast.FuncDecl)
			switch {
			case !is || test.Recv != nil || test.Name.Name != name || !strings.HasPrefix(name, "Test"):
			case len(calls(test, "OnlyFull")) > 0:
				return "which is only in the full tier, too"
			case row != "" && !has(test, row):
				return "which has no such row in the core tier"
			default:
				return ""
			}
		}
	}
	return "which doesn't exist"
}

// calls returns the calls of one of this package's functions in a tree.
func calls(tree ast.Node, function string) (list []*ast.CallExpr) {
	ast.Inspect(tree, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is {
			if f, is := call.Fun.(*ast.SelectorExpr); is && f.Sel.Name == function {
				if from, is := f.X.(*ast.Ident); is && from.Name == "tier" {
					list = append(list, call)
				}
			}
		}
		return true
	})
	return list
}

// has finds a literal, unless only the full tier comes to it.
func has(tree ast.Node, text string) (found bool) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			return len(calls(n.Cond, "Full")) == 0
		case ast.Expr:
			found = found || literal(n) == text
		}
		return true
	})
	return found
}

// literal returns the text of a literal; empty for another expression.
func literal(e ast.Expr) string {
	if l, is := e.(*ast.BasicLit); is {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

// TestNotCore: a stand-in that's misspelt, removed, or only in the full tier itself is found.
func TestNotCore(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p
func TestCore(t *testing.T) {
	m.row("sampled", x)
	if tier.Full() {
		m.row("rare", x)
	}
}
func TestRare(t *testing.T) { tier.OnlyFull(t, "TestCore") }
func Helper(t *testing.T) {}
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for name, core := range map[string]bool{
		"TestCore": true, "TestCore/sampled": true, "TestCore/rare": false, "TestCore/none": false,
		"TestRare": false, "TestNone": false, "Helper": false, "": false,
	} {
		if why := notCore(name, []*ast.File{file}); why == "" != core {
			t.Errorf("%q: %q", name, why)
		}
	}
}
