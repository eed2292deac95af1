// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Program lab boots real nodes on this machine to try Slipway on: systemd, D-Bus, containerd and a kubelet, in a network of their
// own. Without arguments it lists its commands.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// A command of the program. Its flags end at the first argument, because another program's may follow.
type command struct {
	name, usage, summary string
	setUp                func(flags *flag.FlagSet) runner
}

// A runner runs a command.
type runner func(ctx context.Context, lab *nodes.Lab, args []string) error

var errUsage = errors.New("wrong usage")

func commands() []command {
	return []command{
		{"up", "", "boot nodes and make a cluster of them", setUpUp},
		{"down", "", "end and remove the lab's nodes, whatever state they are in", setUpDown},
		{"status", "", "list the lab's nodes", plain(status)},
		{"exec", "NODE PROGRAM [ARGUMENT...]", "run a program in a node", plain(execute)},
		{"kubectl", "[ARGUMENT...]", "run kubectl in the first node", plain(kubectl)},
		{"logs", "NODE [UNIT]", "print the journal of a node or of a unit", plain(logs)},
		{"cp", "FROM TO", "copy files; a place in a node is written NODE:PATH", plain(cp)},
		{"kill", "NODE...", "end all processes of nodes at once, as a power failure does", plain(kill)},
		{"start", "NODE...", "boot nodes that do not run", plain(start)},
		{"restart", "NODE...", "kill nodes and boot them again", plain(restart)},
		{"refresh", "[NODE...]", "put bin/slipway as it is now into running nodes", plain(refresh)},
		{"build", "", "make what a node consists of, as far as it is missing", setUpBuild},
		{"bundle-parts", "", "make a list for `slipway bundle create`, and print its directory", plain(bundleParts)},
	}
}

func plain(run runner) func(*flag.FlagSet) runner {
	return func(*flag.FlagSet) runner { return run }
}

func main() {
	// The second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stderr)
	var exit *nodes.ExitError
	switch {
	case err == nil:
		return
	case errors.As(err, &exit) && exit.Code > 0:
		if exit.Stderr != "" { // otherwise the program has reported its failure itself
			fmt.Fprintln(os.Stderr, "lab:", err)
		}
		os.Exit(exit.Code)
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "lab: interrupted; the same command again goes on from here")
		os.Exit(130)
	}
	fmt.Fprintln(os.Stderr, "lab:", err)
	os.Exit(1)
}

func run(ctx context.Context, args []string, stderr io.Writer) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return usage(stderr)
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		flags.SetOutput(stderr)
		flags.Usage = func() {
			fmt.Fprintf(stderr, "lab %s [flags] %s\n  %s\n", c.name, c.usage, c.summary)
			flags.PrintDefaults()
		}
		name := flags.String("name", "slipway", "which lab; each has a network and nodes of its own")
		kubernetes := flags.String("kubernetes", "", "minor version of what new nodes run, such as 1.36; default the newest")
		architecture := flags.String("arch", "", "architecture of what bundle-parts and build --vm make, such as arm64; default this machine's")
		run := c.setUp(flags)
		if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
			return err
		} else if err != nil {
			return errUsage
		}
		lab, err := nodes.Open(nodes.Options{Name: *name, Kubernetes: *kubernetes, Architecture: *architecture, Log: stderr})
		if err != nil {
			return err
		}
		err = run(ctx, lab, flags.Args())
		if errors.Is(err, errUsage) {
			flags.Usage()
		}
		return err
	}
	return usage(stderr)
}

func usage(w io.Writer) error {
	fmt.Fprintf(w, "Usage: go run ./test/lab COMMAND [flags] [arguments]\n\n")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(table, "  %s\t%s\n", strings.TrimSpace(c.name+" "+c.usage), c.summary)
	}
	table.Flush()
	fmt.Fprintf(w, "\nEvery command takes --name. What is built is kept in %s (default /var/cache/slipway-lab).\n", nodes.DirVariable)
	return errUsage
}
