// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// gotestsum reports tests and retries failed ones; its module pins it.
var gotestsum = []string{"go", "tool", "-modfile=test/tools/go.mod", "gotestsum", "--hide-summary=skipped"}

// test runs a step's tests. The rows are for packages or for tests. The cost has the total time, and the processor time that's in
// no row.
func (r *runner) test(ctx context.Context, s step) (rows []row, spent cost, err error) {
	packages, err := s.tests.list(ctx)
	if err != nil {
		return nil, spent, err
	}
	records, err := newRecords(s.name)
	if err != nil {
		return nil, spent, err
	}
	argv, env, err := s.tests.command(records, packages)
	if err != nil {
		return nil, spent, err
	}
	spent, failed := command(ctx, s.tests.dir, env, argv)
	rows, err = eachPackage(filepath.Join(records, costsFile), s.name)
	for _, r := range rows {
		spent.cpu -= r.cpu // compiling and reporting is left
	}
	if s.tests.each && err == nil {
		rows, err = eachTest(filepath.Join(records, eventsFile), s.name)
	}
	for _, name := range flaky(rows) {
		fmt.Println("FLAKY:", name, "(failed once, then passed)")
	}
	if failed != nil {
		err = failed
	}
	return rows, spent, err
}

// recordsDir keeps the records of each step's last run, for `gotestsum tool slowest` and the like.
const recordsDir = "bin/suite"

func newRecords(step string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(recordsDir, step))
	if err != nil {
		return "", errors.Wrap(err, "cannot find the records")
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", errors.Wrap(err, "cannot remove old records")
	}
	return dir, errors.Wrap(os.MkdirAll(dir, 0o755), "cannot make a directory for records")
}

// The files of a step's records.
const (
	eventsFile = "events.json"
	costsFile  = "costs.tsv"
)

// command returns the command that runs the tests and keeps records in a directory.
func (t *tests) command(records string, packages []string) (argv, env []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, errors.Wrap(err, "cannot find this program")
	}
	argv = slices.Clone(gotestsum)
	if t.dir != "" {
		modfile, err := filepath.Abs("test/tools/go.mod")
		if err != nil {
			return nil, nil, errors.Wrap(err, "cannot find the tools")
		}
		argv[2] = "-modfile=" + modfile
	}
	argv = append(argv, "--jsonfile="+filepath.Join(records, eventsFile), "--packages="+strings.Join(packages, " "))
	if t.each {
		argv = append(argv, "--format=testname", "--rerun-fails=1", "--rerun-fails-run-root-test", "--rerun-fails-max-failures=3")
	} else {
		argv = append(argv, "--format=pkgname")
	}
	argv = append(argv, "--", "-vet=off", "-exec="+self+" "+measureCommand+" "+filepath.Join(records, costsFile))
	if t.race {
		argv, env = append(argv, "-race"), []string{"CGO_ENABLED=1"} // the detector needs cgo
	}
	return append(argv, t.args...), env, nil
}

// list returns the packages to test.
func (t *tests) list(ctx context.Context) ([]string, error) {
	if !t.concurrent && !t.sequential {
		return t.packages, nil
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=Dir,ImportPath,GoFiles,Imports"}, t.packages...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Wrap(err, "go list")
	}
	var found []string
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p struct {
			Dir, ImportPath  string
			GoFiles, Imports []string
		}
		if err := dec.Decode(&p); err != nil {
			return nil, errors.Wrap(err, "go list")
		}
		starts, err := startsGoroutines(p.Dir, p.GoFiles)
		if err != nil {
			return nil, err
		}
		if (starts || slices.Contains(p.Imports, phasesRun)) == t.concurrent {
			found = append(found, p.ImportPath)
		}
	}
	return found, nil
}

// phasesRun is the package that runs phases side by side. Packages that import it have workflows, whose phases may race.
const phasesRun = "github.com/slipway-k8s/slipway/phases/step"

// startsGoroutines reports whether a package has a go statement, or calls a method Go, such as a sync.WaitGroup's.
func startsGoroutines(dir string, files []string) (starts bool, err error) {
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, errors.Wrap(err, "cannot look for goroutines")
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr:
				method, is := n.Fun.(*ast.SelectorExpr)
				starts = starts || is && method.Sel.Name == "Go"
			}
			return !starts
		})
	}
	return starts, nil
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Key, Value string
	Elapsed                           float64 // in seconds
}

// Attributes with a test's own cost, in seconds: the time without waiting for room, and its nodes' processor time.
const (
	wallAttribute = "wall"
	cpuAttribute  = "cpu"
)

// eachTest reads the costs that tests report from the events of a run.
func eachTest(path, step string) ([]row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the tests' events")
	}
	defer f.Close()
	byName := map[string]*row{}
	failed := map[string]bool{}
	var order []string
	for dec := json.NewDecoder(f); dec.More(); {
		var e event
		if err := dec.Decode(&e); err != nil {
			return nil, errors.Wrap(err, "cannot read the tests' events")
		}
		if e.Test == "" {
			continue
		}
		if byName[e.Test] == nil {
			byName[e.Test] = &row{step: step, name: e.Test}
			order = append(order, e.Test)
		}
		if err := byName[e.Test].take(e); err != nil {
			return nil, err
		}
		failed[e.Test] = failed[e.Test] || e.Action == "fail"
		byName[e.Test].flaky = failed[e.Test] && e.Action == "pass" || byName[e.Test].flaky
	}
	var rows []row
	for _, name := range order {
		if r := byName[name]; r.told || r.flaky || !strings.Contains(name, "/") {
			rows = append(rows, *r)
		}
	}
	return rows, nil
}

// take adds an event's cost. A test that ran twice cost both.
func (r *row) take(e event) error {
	switch {
	case e.Action == "attr" && (e.Key == wallAttribute || e.Key == cpuAttribute):
		seconds, err := strconv.ParseFloat(e.Value, 64)
		if err != nil {
			return errors.Wrapf(err, "%s of %s", e.Key, e.Test)
		}
		if !r.told {
			r.told, r.wall = true, 0
		}
		if e.Key == wallAttribute {
			r.wall += inSeconds(seconds)
		} else {
			r.cpu += inSeconds(seconds)
		}
	case (e.Action == "pass" || e.Action == "fail") && !r.told:
		r.wall += inSeconds(e.Elapsed)
	}
	return nil
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// eachPackage reads the costs that measure recorded; none if nothing had to run.
func eachPackage(path, step string) ([]row, error) {
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, errors.Wrap(err, "cannot read the packages' costs")
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, errors.Wrap(err, "cannot tell the packages")
	}
	var rows []row
	for line := range strings.Lines(string(data)) {
		var dir string
		var c cost
		if _, err := fmt.Sscanf(line, "%s\t%d\t%d\n", &dir, &c.wall, &c.cpu); err != nil {
			return nil, errors.Wrapf(err, "cannot read the cost %q", line)
		}
		name, err := filepath.Rel(here, dir)
		if err != nil {
			return nil, errors.Wrap(err, "cannot tell a package")
		}
		rows = append(rows, row{step: step, name: name, cost: c})
	}
	return rows, nil
}

func flaky(rows []row) (list []string) {
	for _, r := range rows {
		if r.flaky {
			list = append(list, r.name)
		}
	}
	return list
}
