// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fact

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fixture"
)

// complete maps the beginnings of sentences that tests may compare as a whole to the reasons.
var complete = map[string]string{
	"kubeadm: phase preflight: this host is a":  "the test's own message, as it is wrapped",
	" ! this line is wider than a":              "the test's own message, as it is wrapped",
	"[certs] Generating \"ca\"\n":               "the test's own messages, as lines",
	"the clock is slow":                         "the test's own message, as an event",
	"it did not start":                          "the test's own error, which the message begins with",
	"the plugin says no":                        "the test's own message, as an error's cause",
	"The disruption budget web ":                "the API's words",
	"more than one budget":                      "the API's words",
	"it is being terminated":                    "the API's words",
	"flag provided but not defined: ":           "another program's words",
	"feature is locked to":                      "another program's words",
	"but depends on features that are disabled": "another program's words",
	"that has not been registered":              "another program's words",
	"\ncp-2 control-plane v1.37.0-rc.1 | # ":    "all steps of an upgrade, complete",
	"within the budget of ":                     "a bill, complete",
	"<!-- The table is made by ":                "a mark in a page",
	"<!-- end of the table -->":                 "a mark in a page",
}

// four plain words in a row are a sentence.
var four = regexp.MustCompile(`(?:^|[\s(])[A-Za-z]?[a-z]+(?:,? [a-z]+){3}(?:$|[\s,.:;)])`)

// TestNoSentences: no test compares a message with a sentence, which would freeze its wording. It checks all tests, and everything
// below test/, where they share code. It finds a sentence as an argument of strings.Contains and its like, beside == with a message,
// and in a variable, constant or table column used there.
func TestNoSentences(t *testing.T) {
	used := map[string]bool{}
	set, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, file := range fixture.GoFiles(t) {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "test/") {
			continue
		}
		tree, err := parser.ParseFile(set, fixture.Path(file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		packages[path.Dir(file)] = append(packages[path.Dir(file)], tree)
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		for _, literal := range sentences(packages[dir]...) {
			text, _ := strconv.Unquote(literal.Value)
			if begin := allowed(text); begin != "" {
				used[begin] = true
				continue
			}
			t.Errorf("%s asserts a sentence, which may be worded otherwise: %s; assert names and facts with fact.In",
				strings.TrimPrefix(set.Position(literal.Pos()).String(), "../../"), literal.Value)
		}
	}
	for begin := range complete {
		if !used[begin] {
			t.Errorf("no test has %q any more", begin)
		}
	}
}

// allowed returns the beginning in complete that matches, if any.
func allowed(text string) string {
	for begin := range complete {
		if strings.HasPrefix(text, begin) {
			return begin
		}
	}
	return ""
}

// TestSentences: the guard finds each form.
func TestSentences(t *testing.T) {
	const head, sentence = "package p\nfunc f(err error) {\n", "`the disk is full again`"
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"an argument":       {"_ = strings.Contains(err.Error(), " + sentence + ")", 1},
		"a comparison":      {"_ = err.Error() == " + sentence, 1},
		"a joined text":     {"_ = err.Error() != `etc: ` + " + sentence, 1},
		"bytes":             {"_ = bytes.HasPrefix(out, []byte(" + sentence + "))", 1},
		"a constant":        {"const want = " + sentence + "\n_ = fmt.Sprint(err) == want", 1},
		"a variable":        {"want := " + sentence + "\n_ = strings.HasSuffix(out, want)", 1},
		"a column":          {"for _, c := range []struct{ a, want string }{{`x`, " + sentence + "}} { _ = strings.Contains(out, c.want) }", 1},
		"a column's key":    {"for _, c := range []struct{ a, want string }{{want: " + sentence + "}} { _ = c.want == err.Error() }", 1},
		"a map's column":    {"for _, c := range map[string]struct{ want []string }{`k`: {[]string{" + sentence + "}}} { for _, w := range c.want { _ = strings.Contains(out, w) } }", 1},
		"a list":            {"for _, w := range []string{" + sentence + "} { _ = strings.Contains(out, w) }", 1},
		"a map's value":     {"for _, w := range map[string]string{`k`: " + sentence + "} { _ = strings.Contains(out, w) }", 1},
		"a named row":       {"type row struct{ a, want string }\nfor _, c := range []row{{`x`, " + sentence + "}} { _ = cmp.Diff(c.want, out) }", 1},
		"another column":    {"for _, c := range []struct{ a, want string }{{" + sentence + ", `x`}} { _ = strings.Contains(out, c.want) }", 0},
		"an input":          {"_ = strings.Contains(Run(" + sentence + "), `x`)", 0},
		"a failure's text":  {"t.Errorf(" + sentence + ")", 0},
		"in quotes":         {"_ = strings.Contains(out, \"run `a b c d e`\")", 0},
		"a path and a name": {"_ = strings.Contains(out, `/etc/kubernetes kubelet.conf 6443`)", 0},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", head+c.body+"\n}", 0)
		if err != nil {
			t.Fatal(name, err)
		}
		if found := sentences(file); len(found) != c.want {
			t.Errorf("%s: found %d, want %d", name, len(found), c.want)
		}
	}
}

// sentences returns the literals in a package's files compared with messages.
func sentences(files ...*ast.File) []*ast.BasicLit {
	g := guard{rows: map[string]*ast.StructType{}, columns: map[string]bool{}}
	names := make([]map[string]bool, len(files))
	for i, file := range files {
		names[i] = map[string]bool{}
		g.names = names[i]
		ast.Inspect(file, g.define)
		for range 3 { // from the comparison, through a list in a range loop, to the table
			ast.Inspect(file, g.use)
		}
	}
	for i, file := range files {
		g.names = names[i]
		ast.Inspect(file, g.find)
	}
	slices.SortFunc(g.found, func(a, b *ast.BasicLit) int { return int(a.Pos() - b.Pos()) })
	return slices.Compact(g.found)
}

// guard collects the names compared with messages: variables of the file, and columns of the package's tables.
type guard struct {
	names, columns map[string]bool
	rows           map[string]*ast.StructType // by type name
	found          []*ast.BasicLit
}

// define learns a type of rows.
func (g *guard) define(n ast.Node) bool {
	if spec, ok := n.(*ast.TypeSpec); ok {
		if row, ok := spec.Type.(*ast.StructType); ok {
			g.rows[spec.Name.Name] = row
		}
	}
	return true
}

// use learns the names in expressions compared with a message.
func (g *guard) use(n ast.Node) bool {
	for _, e := range compared(n) {
		g.learn(e)
	}
	if r, ok := n.(*ast.RangeStmt); ok && g.ranged(r) {
		g.learn(r.X)
	}
	return true
}

// ranged recognizes a loop over texts compared with a message.
func (g *guard) ranged(r *ast.RangeStmt) bool {
	value, ok := r.Value.(*ast.Ident)
	return ok && g.names[value.Name]
}

func (g *guard) learn(e ast.Expr) {
	switch e := e.(type) {
	case *ast.Ident:
		g.names[e.Name] = true
	case *ast.SelectorExpr:
		g.columns[e.Sel.Name] = true
	case *ast.BinaryExpr:
		g.learn(e.X)
		g.learn(e.Y)
	}
}

// find collects the sentences in such expressions, and in the values of learned names.
func (g *guard) find(n ast.Node) bool {
	for _, e := range compared(n) {
		g.collect(e)
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if name, ok := left.(*ast.Ident); ok && g.names[name.Name] && len(n.Rhs) == len(n.Lhs) {
				g.collect(n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if g.names[name.Name] && i < len(n.Values) {
				g.collect(n.Values[i])
			}
		}
	case *ast.RangeStmt:
		if g.ranged(n) {
			g.collect(n.X)
		}
	case *ast.CompositeLit:
		g.table(n)
	}
	return true
}

func (g *guard) table(list *ast.CompositeLit) {
	var kind ast.Expr
	switch t := list.Type.(type) {
	case *ast.ArrayType:
		kind = t.Elt
	case *ast.MapType:
		kind = t.Value
	}
	row, _ := kind.(*ast.StructType)
	if name, ok := kind.(*ast.Ident); ok {
		row = g.rows[name.Name]
	}
	if row == nil {
		return
	}
	var columns []string
	for _, field := range row.Fields.List {
		for _, name := range field.Names {
			columns = append(columns, name.Name)
		}
	}
	for _, e := range list.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			e = pair.Value
		}
		cells, ok := e.(*ast.CompositeLit)
		if !ok {
			continue
		}
		for i, cell := range cells.Elts {
			column, value := "", cell
			if pair, ok := cell.(*ast.KeyValueExpr); ok {
				column, value = pair.Key.(*ast.Ident).Name, pair.Value
			} else if i < len(columns) {
				column = columns[i]
			}
			if g.columns[column] {
				g.collect(value)
			}
		}
	}
}

// collect takes the sentences of an expression, except the arguments of functions.
func (g *guard) collect(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		if e.Kind == token.STRING && err == nil && four.MatchString(quoted.ReplaceAllString(text, "…")) {
			g.found = append(g.found, e)
		}
	case *ast.BinaryExpr:
		g.collect(e.X)
		g.collect(e.Y)
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Value
			}
			g.collect(element)
		}
	case *ast.CallExpr:
		if _, conversion := e.Fun.(*ast.ArrayType); conversion {
			g.collect(e.Args[0])
		}
	}
}

// compared returns the expressions in a statement compared with a message.
func compared(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) != 2 {
			return nil
		}
		lib, ok := f.X.(*ast.Ident)
		if ok && lib.Name == "cmp" && f.Sel.Name == "Diff" {
			return n.Args
		}
		if ok && (lib.Name == "strings" || lib.Name == "bytes") && slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "Cut", "Index", "Count"}, f.Sel.Name) {
			return n.Args[1:]
		}
	case *ast.BinaryExpr:
		switch {
		case n.Op != token.EQL && n.Op != token.NEQ:
		case message(n.X):
			return []ast.Expr{n.Y}
		case message(n.Y):
			return []ast.Expr{n.X}
		}
	}
	return nil
}

// message recognizes a call that returns a message: err.Error(), out.String(), fault.Remedy(err), fmt.Sprint(err).
func message(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (slices.Contains([]string{"Remedy", "Sprint", "Sprintln"}, f.Sel.Name) || len(call.Args) == 0 && slices.Contains([]string{"Error", "String"}, f.Sel.Name))
}
