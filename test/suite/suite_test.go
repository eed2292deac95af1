// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBill(t *testing.T) {
	unit, e2e := step{name: "unit", tests: &tests{}}, step{name: "e2e", tests: &tests{each: true}}
	b := &bill{budget: 35 * time.Minute}
	b.add(unit, []row{
		{step: "unit", name: "phases", cost: cost{60 * time.Second, 90 * time.Second}},
		{step: "unit", name: "internal/retry", cost: cost{100 * time.Millisecond, 10 * time.Millisecond}},
	}, cost{2 * time.Minute, 10 * time.Second})
	b.add(step{name: "parts", parts: true}, nil, cost{12 * time.Minute, 20 * time.Minute})
	b.add(e2e, []row{{step: "e2e", name: "TestUp", told: true, cost: cost{4 * time.Minute, 3 * time.Minute}}}, cost{5 * time.Minute, 0})
	const table = `     wall processor  step: package or test
    720.0    1200.0  parts: the step itself
    240.0     180.0  e2e: TestUp
     60.0      90.0  unit: phases
        -      10.0  unit: compiling and reporting
      0.1       0.0  2 cheaper rows
total: 19m0s, 24m40s of processor time; without making the lab's parts: 7m0s
`
	if diff := cmp.Diff(table+"within the budget of 35m0s\n", b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.budget = 5 * time.Minute
	if lines := strings.Split(b.String(), "\n"); !strings.HasPrefix(lines[len(lines)-2], "OVER BUDGET by 2m0s") {
		t.Errorf("the last lines of a run that took too long are\n%s", b.String())
	}
}

func TestEachTest(t *testing.T) {
	events := filepath.Join(t.TempDir(), eventsFile)
	write(t, events, `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"attr","Package":"p","Test":"TestA","Key":"wall","Value":"61.5"}
{"Action":"attr","Package":"p","Test":"TestA","Key":"cpu","Value":"40.25"}
{"Action":"pass","Package":"p","Test":"TestA/one","Elapsed":50}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":300}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":2}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":3}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":1}
{"Action":"pass","Package":"p","Elapsed":400}
`)
	got, err := eachTest(events, "e2e")
	if err != nil {
		t.Fatal(err)
	}
	want := []row{
		{step: "e2e", name: "TestA", told: true, cost: cost{61500 * time.Millisecond, 40250 * time.Millisecond}},
		{step: "e2e", name: "TestB", flaky: true, cost: cost{wall: 5 * time.Second}},
		{step: "e2e", name: "TestC", cost: cost{wall: time.Second}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{}, cost{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := flaky(got); !slices.Equal(names, []string{"TestB"}) {
		t.Errorf("flaky are %v", names)
	}
}

func TestMeasure(t *testing.T) {
	file := filepath.Join(t.TempDir(), costsFile)
	for code := range 2 {
		if got := measure(file, []string{"sh", "-c", fmt.Sprintf("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit %d", code)}); got != code {
			t.Errorf("a program that exits with %d is said to exit with %d", code, got)
		}
	}
	if got := measure(file, []string{"sh", "-c", "kill -KILL $$"}); got != 1 {
		t.Errorf("a program that is killed is said to exit with %d", got)
	}
	rows, err := eachPackage(file, "unit")
	if err != nil || len(rows) != 3 {
		t.Fatalf("%v, rows %v", err, rows)
	}
	for _, r := range rows[:2] {
		if r.name != "." || r.cpu <= 0 || r.wall <= 0 {
			t.Errorf("the row is %+v", r)
		}
	}
}

func TestStartsGoroutines(t *testing.T) {
	dir := t.TempDir()
	for body, want := range map[string]bool{"": false, "go f()": true, "var g sync.WaitGroup; g.Go(f)": true, `println("go f()")`: false} {
		write(t, filepath.Join(dir, "a.go"), "package a\n\nfunc f() {\n"+body+"\n}\n")
		if got, err := startsGoroutines(dir, []string{"a.go"}); got != want || err != nil {
			t.Errorf("%q: %t, %v", body, got, err)
		}
	}
}

// TestLongTestsRunOnce: the step unit leaves out no test, so it mustn't contain packages of the step long.
func TestLongTestsRunOnce(t *testing.T) {
	t.Chdir("../..")
	twice, err := (&tests{packages: longPackages, sequential: true}).list(t.Context())
	if err != nil || len(twice) > 0 {
		t.Errorf("the steps unit and long both run the long tests of %q: %v", twice, err)
	}
}

// TestChoose also compares docs/testing.md, which lists the steps, with the table of steps.
func TestChoose(t *testing.T) {
	core, err := choose(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	full, err := choose(true, nil)
	if err != nil || len(full) != len(steps) || len(core) >= len(full) || !slices.Contains(names(core), "e2e") {
		t.Errorf("core %v, full %v, %v", names(core), names(full), err)
	}
	if one, err := choose(false, []string{"fuzz"}); err != nil || len(one) != 1 {
		t.Errorf("a step that is asked for: %v, %v", names(one), err)
	}
	if _, err := choose(false, []string{"nonsense"}); err == nil {
		t.Error("a step that does not exist is chosen")
	}
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		tier := "both"
		if s.onlyFull {
			tier = "full"
		}
		if row := fmt.Sprintf("| `%s` | %s |", s.name, tier); !strings.Contains(string(page), row) {
			t.Errorf("docs/testing.md has no row %q", row)
		}
	}
}

// TestEachTestRuns: the step race leaves out tests by their names, in every package, and the step long runs them in a few. So
// each name must belong to a test in one of these, and to none elsewhere.
func TestEachTestRuns(t *testing.T) {
	found := map[string]bool{}
	skipped := regexp.MustCompile(`(?m)^func Test(` + strings.Join(slices.Concat(longTests, wideTests), "|") + `)\(`)
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(root, path)
		for _, test := range skipped.FindAllSubmatch(data, -1) {
			found[string(test[1])] = true
			if !slices.Contains(longPackages, "./"+filepath.Dir(path)) {
				t.Errorf("%s has Test%s, which no step of the core tier runs there: give it another name", path, test[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(longTests, wideTests) {
		if !found[name] {
			t.Errorf("there is no Test%s", name)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
