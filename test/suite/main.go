// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Suite runs a tier of the tests, step by step, and ends with a table of the cost of each package and of each test on real
// clusters. See docs/testing.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/tier"
)

// measureCommand makes this program run a test program and record its cost: `go test -exec`.
const measureCommand = "measure"

func main() {
	if len(os.Args) > 3 && os.Args[1] == measureCommand {
		os.Exit(measure(os.Args[2], os.Args[3:]))
	}
	full := flag.Bool("full", false, "run everything, not the core tier")
	budget := flag.Duration("budget", 0, "how long the run is meant to take, but for the lab's parts; 0 for no budget")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "Usage: go run ./test/suite [flags] [STEP...]\n\nSteps, all by default: %s\n\n", strings.Join(names(steps), " "))
		flag.PrintDefaults()
	}
	flag.Parse()
	// The second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, *full, *budget, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, full bool, budget time.Duration, only []string) error {
	chosen, err := choose(full, only)
	if err != nil {
		return err
	}
	name := "core"
	if full {
		name = "full"
	}
	if err := os.Setenv(tier.Variable, name); err != nil {
		return errors.Wrap(err, "cannot choose the tier")
	}
	fmt.Printf("the %s tier: %s; %s=%s\n", name, strings.Join(names(chosen), ", "), tier.Seed, os.Getenv(tier.Seed))
	r := &runner{bill: bill{budget: budget}}
	for _, s := range chosen {
		if err = r.step(ctx, s); err != nil {
			break
		}
	}
	fmt.Print("\n", r.bill.String())
	return err
}

// choose picks the steps of a tier, or the named steps, in order.
func choose(full bool, only []string) ([]step, error) {
	for _, name := range only {
		if !slices.Contains(names(steps), name) {
			return nil, errors.Errorf("there is no step %q: there are %s", name, strings.Join(names(steps), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool {
		if len(only) > 0 {
			return !slices.Contains(only, s.name)
		}
		return s.onlyFull && !full
	}), nil
}

func names(all []step) (list []string) {
	for _, s := range all {
		list = append(list, s.name)
	}
	return list
}
