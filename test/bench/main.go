// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Bench compares Slipway with its peer. The two take turns on fresh nodes of
// the same lab, so that whatever else the machine does meets both.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// programs are the two, by their names on a node.
var programs = []string{"slipway", "kubeadm"}

func main() {
	rounds := flag.Int("rounds", 5, "measurements of each program; the median counts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int) error {
	lab, err := nodes.Open(nodes.Options{Name: "bench", Log: os.Stderr})
	if err != nil {
		return err
	}
	if err := lab.Build(ctx); err != nil {
		return err
	}
	if err := lab.Down(ctx); err != nil { // what an interrupted bench left
		return err
	}
	defer func() { _ = lab.Down(context.WithoutCancel(ctx)) }()
	t := newTable()
	for round := range rounds {
		// Who goes first changes, for the second finds warmer caches.
		for turn := range programs {
			program := programs[(turn+round)%len(programs)]
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, program)
			if err := measure(ctx, lab, program, t); err != nil {
				return errors.Wrap(err, program)
			}
		}
	}
	return t.print(os.Stdout)
}
