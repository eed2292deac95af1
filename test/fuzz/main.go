// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Fuzz runs every fuzz target in the module for some time, two at a time, and prints a line for each. A target's findings are
// kept in its package's testdata/fuzz, where every later test run tries them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
)

// target is a fuzz function in the test program of its package.
type target struct {
	name, dir, importPath string
	program               string
}

func main() {
	limit := flag.Duration("time", 30*time.Second, "how long to run each target")
	side := flag.Int("side-by-side", 2, "how many to run at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *limit, *side); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, limit time.Duration, side int) error {
	bin, err := os.MkdirTemp("", "slipway-fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	targets, err := find(ctx, bin)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("no target found")
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return errors.Wrap(err, "go env GOCACHE")
	}
	corpus := filepath.Join(strings.TrimSpace(string(cache)), "fuzz")
	var group errgroup.Group
	group.SetLimit(side)
	for _, t := range targets {
		group.Go(func() error { return t.fuzz(ctx, limit, corpus) })
	}
	return group.Wait()
}

// find builds, with the engine's counters, the test programs of all packages with targets, and asks each for its targets.
func find(ctx context.Context, bin string) ([]target, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		return nil, errors.Wrap(err, "go list")
	}
	var targets []target
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); err != nil {
			return nil, errors.Wrap(err, "go list")
		}
		if !mentionsTarget(p.Dir, append(p.TestGoFiles, p.XTestGoFiles...)) {
			continue
		}
		program := filepath.Join(bin, strings.ReplaceAll(p.ImportPath, "/", "_"))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz=.", "-o", program, p.ImportPath)
		if text, err := build.CombinedOutput(); err != nil {
			return nil, errors.Wrapf(err, "building the tests of %s: %s", p.ImportPath, text)
		}
		list, err := exec.CommandContext(ctx, program, "-test.list=^Fuzz").Output()
		if err != nil {
			return nil, errors.Wrapf(err, "the targets of %s", p.ImportPath)
		}
		for _, name := range strings.Fields(string(list)) {
			targets = append(targets, target{name, p.Dir, p.ImportPath, program})
		}
	}
	return targets, nil
}

// mentionsTarget avoids building the tests of packages without targets.
func mentionsTarget(dir string, files []string) bool {
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil && strings.Contains(string(data), "\nfunc Fuzz") {
			return true
		}
	}
	return false
}

// timeIsUp matches the engine's output, in place of success, if its coordinator sees the end of -fuzztime before its workers do,
// on a busy machine: https://github.com/golang/go/issues/75804
var timeIsUp = regexp.MustCompile(`(?m)^--- FAIL: \w+ \(\S+\)\n    context deadline exceeded\nFAIL$`)

// onlyTimeIsUp reports whether a run failed only because its time was up. A real fault has a failing input, a panic, or other
// output.
func onlyTimeIsUp(out string) bool {
	return timeIsUp.MatchString(out) && !strings.Contains(out, "Failing input") && !strings.Contains(out, "panic:")
}

var progress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+)`)

// fuzz runs the target on one processor and prints its line. It limits the minimizing of inputs: on inputs of kilobytes, the
// engine would do nothing else.
func (t target) fuzz(ctx context.Context, limit time.Duration, corpus string) error {
	run := exec.CommandContext(ctx, t.program, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.parallel=1",
		"-test.fuzztime="+limit.String(), "-test.fuzzminimizetime=100x", "-test.fuzzcachedir="+filepath.Join(corpus, t.importPath))
	run.Dir = t.dir
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	out, err := run.CombinedOutput()
	if err != nil && !onlyTimeIsUp(string(out)) {
		fmt.Printf("FAIL  %-22s %s\n%s", t.name, t.importPath, out)
		return errors.Errorf("%s found a fault; the input is in %s/testdata/fuzz", t.name, t.importPath)
	}
	// On a busy machine, the engine may get no further than the corpus.
	inputs, found := "its corpus, no new", "0"
	if said := progress.FindAllStringSubmatch(string(out), -1); len(said) > 0 {
		last := said[len(said)-1]
		inputs, found = last[1], last[2]
	}
	fmt.Printf("ok    %-22s %-52s %9s inputs, %s interesting\n", t.name, t.importPath, inputs, found)
	return nil
}
