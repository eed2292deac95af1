// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeIsReadOnly: outside this package, nothing assigns to a Node or to anything it leads to, except in a change for With.
// A copy's own fields may change.
func TestNodeIsReadOnly(t *testing.T) {
	checked := newCheckedPackages()
	checked.check("main", ourModule+"cmd/slipway")
	for _, pos := range checked.found {
		t.Errorf("%s changes a Node: use With", checked.set.Position(pos))
	}
	if len(checked.done) < 100 || checked.done[ourModule+"phases/upgrade"] == nil {
		t.Errorf("checked %d packages", len(checked.done))
	}
}

// TestReadOnlyFinds makes sure that the test above can fail.
func TestReadOnlyFinds(t *testing.T) {
	checked := newCheckedPackages()
	for code, want := range map[string]int{
		`n.Name = "x"`:                                        1,
		`n.Cluster.Etcd.Local = nil`:                          1,
		`n.Upgrade.Version, n.BindPort = "x", 1`:              2,
		`n.Taints[0].Key = "x"`:                               1,
		`n.Extras["x"] = nil`:                                 1,
		`n.BindPort++`:                                        1,
		`*n = config.Node{}`:                                  1,
		`env.Config.Schedulable = true`:                       1,
		`env.Config = n`:                                      0,
		`copied := *n; copied.Name = "x"`:                     0,
		`copied := *n; copied.Cluster.DNS.Disabled = true`:    0,
		`copied := *n; copied.Upgrade.Version = "x"`:          1,
		`copied := *n; copied.Cluster.FeatureGates["x"]=true`: 1,
		`n = n.With(func(n *config.Node) { n.Name = "x" })`:   0,
		`n.Join = nil; n.With(func(n *config.Node) {})`:       1,
	} {
		checked.found = nil
		file, err := parser.ParseFile(checked.set, "p.go", `package p
import "`+ourModule+`internal/config"
type environment struct { Config *config.Node }
func f(n *config.Node, env *environment) { `+code+` }`, 0)
		if err != nil {
			t.Fatal(err)
		}
		checked.checkFiles("p", file)
		if len(checked.found) != want {
			t.Errorf("%s: found %d, want %d", code, len(checked.found), want)
		}
	}
}

const ourModule = "github.com/slipway-k8s/slipway/"

// checkedPackages has the types of our packages, as far as they don't depend on others.
type checkedPackages struct {
	set   *token.FileSet
	done  map[string]*types.Package
	found []token.Pos
}

func newCheckedPackages() *checkedPackages {
	return &checkedPackages{set: token.NewFileSet(), done: map[string]*types.Package{}}
}

// Import implements types.Importer. Other modules' packages are empty.
func (c *checkedPackages) Import(name string) (*types.Package, error) {
	if c.done[name] == nil && strings.HasPrefix(name, ourModule) {
		c.check(name, name)
	}
	if c.done[name] == nil {
		c.done[name] = types.NewPackage(name, path.Base(name))
		c.done[name].MarkComplete()
	}
	return c.done[name], nil
}

func (c *checkedPackages) check(name, at string) {
	dir := filepath.Join("../..", strings.TrimPrefix(at, ourModule))
	listed, err := build.ImportDir(dir, 0)
	if err != nil {
		return
	}
	var files []*ast.File
	for _, file := range listed.GoFiles {
		if parsed, err := parser.ParseFile(c.set, filepath.Join(dir, file), nil, parser.SkipObjectResolution); err == nil {
			files = append(files, parsed)
		}
	}
	c.checkFiles(name, files...)
}

func (c *checkedPackages) checkFiles(name string, files ...*ast.File) {
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}
	checker := types.Config{Importer: c, Error: func(error) {}} // what's unknown comes from other modules
	c.done[name], _ = checker.Check(name, c.set, files, info)   // the same errors
	if name == ourModule+"internal/config" {
		return
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				return !ok || fun.Sel.Name != "With" || !isNode(info.Types[fun.X].Type)
			case *ast.AssignStmt:
				for _, to := range n.Lhs {
					c.assigned(info, to)
				}
			case *ast.IncDecStmt:
				c.assigned(info, n.X)
			}
			return true
		})
	}
}

// assigned notes an assignment to a Node, or to anything it leads to.
func (c *checkedPackages) assigned(info *types.Info, to ast.Expr) {
	shared := false // with other copies of the Node
	for e := to; e != nil; {
		var outer ast.Expr
		switch e := e.(type) {
		case *ast.SelectorExpr:
			outer = e.X
		case *ast.IndexExpr:
			outer, shared = e.X, true
		case *ast.StarExpr:
			outer = e.X
		case *ast.ParenExpr:
			outer = e.X
		}
		if outer == nil {
			return
		}
		of := info.Types[outer].Type
		if of != nil {
			_, pointer := of.Underlying().(*types.Pointer)
			shared = shared || pointer
		}
		if isNode(of) && shared {
			c.found = append(c.found, to.Pos())
			return
		}
		e = outer
	}
}

// isNode is for a Node and a pointer to one.
func isNode(t types.Type) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == "Node" && named.Obj().Pkg().Path() == ourModule+"internal/config"
}
