// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Bench compares Slipway with kubeadm. They take turns on fresh nodes of the same lab, so that other load on the machine affects
// both.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/joiners"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// programs are Slipway's and kubeadm's names on a node.
var programs = []string{"slipway", "kubeadm"}

// both is for nodes with kubeadm as well as Slipway.
var both = []string{nodes.Kubeadm}

// section is a part of the comparison, on nodes of its own.
type section struct {
	name    string
	measure func(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error
}

var sections = []section{
	{"init", measureInits}, {"cluster", measureClusters}, {"join", measureJoins}, {"upgrade", measureUpgrades}, {"up", measureUps},
	{"etcd", measureEtcd}, {"snapshot", measureSnapshots},
}

func main() {
	joiners.Play() // doesn't return in the copy that runs on a node
	rounds := flag.Int("rounds", 5, "measurements of each program, of which the median counts")
	only := flag.String("only", "", "measure just this `section`: init, cluster, join, upgrade, up, etcd or snapshot")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	playWriter(ctx) // nor does this
	if err := run(ctx, *rounds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, only string) error {
	if only != "" && !slices.ContainsFunc(sections, func(s section) bool { return s.name == only }) {
		return errors.Errorf("there is no section %q", only)
	}
	lab, err := nodes.Open(nodes.Options{Name: "bench", Log: os.Stderr})
	if err != nil {
		return err
	}
	if err := lab.Down(ctx); err != nil { // of an interrupted bench
		return err
	}
	defer func() { _ = lab.Down(context.WithoutCancel(ctx)) }()
	before, err := readProcessors()
	if err != nil {
		return err
	}
	t := newTable()
	for _, s := range sections {
		if only != "" && only != s.name {
			continue
		}
		if err := s.measure(ctx, lab, rounds, t); err != nil {
			_ = t.print(os.Stdout) // the measurements so far
			return err
		}
	}
	if err := t.print(os.Stdout); err != nil {
		return err
	}
	after, err := readProcessors()
	if err != nil {
		return err
	}
	fmt.Printf("Of the processor time that was asked for, others took %.1f %%.\n", after.stolenSince(before))
	return nil
}

func measureInits(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	return takeTurns(rounds, func(program string) error { return measure(ctx, lab, program, t) })
}

// takeTurns measures the programs one after another, round by round. They take turns at going first, because the second finds
// warmer caches.
func takeTurns(rounds int, measure func(program string) error) error {
	for round := range rounds {
		for turn := range programs {
			program := programs[(turn+round)%len(programs)]
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, program)
			if err := measure(program); err != nil {
				return errors.Wrap(err, program)
			}
		}
	}
	return nil
}
