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
	"slices"
	"strings"
	"testing"
)

// TestNodeIsReadOnly: outside this package, nothing assigns to a Node, to a Machine, or to anything they lead to. A copy's own
// fields may change, such as those of the copy in a change for With, but not the values it shares with the original.
func TestNodeIsReadOnly(t *testing.T) {
	checked := newCheckedPackages()
	checked.check("main", ourModule+"cmd/slipway")
	for _, pos := range checked.found {
		t.Errorf("%s changes a Node or a Machine: use With", checked.set.Position(pos))
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
		`n.DryRun = true`:                                     1,
		`n.Machine.Paths.PKI = "/x"`:                          1,
		`m.DryRun = true`:                                     1,
		`host := &n.Machine; host.Paths.PKI = "/x"`:           1,
		`copied := *m; copied.DryRun = true`:                  0,
		`m.With(func(m *config.Machine) { m.DryRun = true })`: 0,
		`env.Config = n`:                                      0,
		`copied := *n; copied.Name = "x"`:                     0,
		`copied := *n; copied.Cluster.DNS.Disabled = true`:    0,
		`copied := *n; copied.Upgrade.Version = "x"`:          1,
		`copied := *n; copied.Cluster.FeatureGates["x"]=true`: 1,
		`delete(n.Extras, "x")`:                               1,
		`clear(n.Cluster.FeatureGates)`:                       1,
		`n = n.With(func(n *config.Node) { n.Name = "x" })`:   0,
		`n.Join = nil; n.With(func(n *config.Node) {})`:       1,
		`n.With(func(c *config.Node) { n.Name = "x" })`:       1,
		`n.With(func(c *config.Node) { c.Cluster.Etcd.Local, c.Upgrade = nil, &config.Upgrade{} })`:           0,
		`n.With(func(c *config.Node) { c.Cluster.Etcd.Local.DataDir = "x" })`:                                 1,
		`n.With(func(c *config.Node) { c.DryRun, c.Machine.Paths.PKI = true, "/x" })`:                         0,
		`n.With(func(c *config.Node) { c.Upgrade.Version = "x" })`:                                            1,
		`n.With(func(c *config.Node) { c.Cluster.FeatureGates["x"] = true; c.Taints[0].Key = "x" })`:          2,
		`n.With(func(c *config.Node) { delete(c.Extras, "x") })`:                                              1,
		`n.With(func(c *config.Node) { *c = config.Node{Name: "x"} }).With(func(c *config.Node) { *n = *c })`: 1,
	} {
		checked.found = nil
		file, err := parser.ParseFile(checked.set, "p.go", `package p
import "`+ourModule+`internal/config"
type environment struct { Config *config.Node }
func f(n *config.Node, m *config.Machine, env *environment) { `+code+` }`, 0)
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
	info := &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
	}
	checker := types.Config{Importer: c, Error: func(error) {}} // what's unknown comes from other modules
	c.done[name], _ = checker.Check(name, c.set, files, info)   // the same errors
	if name == ourModule+"internal/config" {
		return
	}
	for _, file := range files {
		c.find(info, file, nil)
	}
}

// find looks for assignments in a tree. own is the copy in a change for With, if the tree is one.
func (c *checkedPackages) find(info *types.Info, tree ast.Node, own types.Object) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if change, copied := changeOf(info, n); change != nil {
				c.find(info, n.Fun, own)
				c.find(info, change.Body, copied)
				return false
			}
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
				c.assigned(info, &ast.IndexExpr{X: n.Args[0]}, own)
			}
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				c.assigned(info, to, own)
			}
		case *ast.IncDecStmt:
			c.assigned(info, n.X, own)
		}
		return true
	})
}

// changeOf returns the function that a call of With gets, and the copy that it changes; nil for another call.
func changeOf(info *types.Info, call *ast.CallExpr) (change *ast.FuncLit, copied types.Object) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "With" || !isState(info.Types[f.X].Type) || len(call.Args) != 1 {
		return nil, nil
	}
	change, ok = call.Args[0].(*ast.FuncLit)
	if !ok || len(change.Type.Params.List) != 1 || len(change.Type.Params.List[0].Names) != 1 {
		return nil, nil
	}
	return change, info.Defs[change.Type.Params.List[0].Names[0]]
}

// assigned notes an assignment to a Node or a Machine, or to anything it leads to, unless it's a part of own that isn't shared.
func (c *checkedPackages) assigned(info *types.Info, to ast.Expr, own types.Object) {
	shared := false // with other copies
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
		if name, ok := outer.(*ast.Ident); of != nil && (!ok || own == nil || info.Uses[name] != own) {
			_, pointer := of.Underlying().(*types.Pointer)
			shared = shared || pointer
		}
		if isState(of) && shared {
			c.found = append(c.found, to.Pos())
			return
		}
		e = outer
	}
}

// isState is for a Node, a Machine, and a pointer to one.
func isState(t types.Type) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && slices.Contains([]string{"Node", "Machine"}, named.Obj().Name()) && named.Obj().Pkg().Path() == ourModule+"internal/config"
}
