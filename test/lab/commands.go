// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

func setUpDown(flags *flag.FlagSet) runner {
	all := flags.Bool("all", false, "take down every lab")
	return func(ctx context.Context, lab *nodes.Lab, args []string) error {
		if len(args) > 0 {
			return errUsage
		}
		if !*all {
			return lab.Down(ctx)
		}
		names, err := nodes.Names("")
		if err != nil {
			return err
		}
		for _, name := range names {
			other, err := nodes.Open(nodes.Options{Name: name, Log: os.Stderr})
			if err != nil {
				return err
			}
			if err := other.Down(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func status(_ context.Context, lab *nodes.Lab, args []string) error {
	if len(args) > 0 {
		return errUsage
	}
	all, err := lab.Nodes()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NODE\tADDRESS\tIPV6\tSTATE")
	for _, n := range all {
		state := "stopped"
		if n.Running() {
			state = "running"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.Name(), n.IP(), n.IPv6(), state)
	}
	return table.Flush()
}

func execute(ctx context.Context, lab *nodes.Lab, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	n, err := lab.Node(args[0])
	if err != nil {
		return err
	}
	_, err = unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	return n.Exec(ctx, nodes.Cmd{
		Args: args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		CancelSignal: unix.SIGINT, Interactive: err == nil,
	})
}

func kubectl(ctx context.Context, lab *nodes.Lab, args []string) error {
	return execute(ctx, lab, append([]string{firstNode, "kubectl"}, args...))
}

func logs(ctx context.Context, lab *nodes.Lab, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errUsage
	}
	n, err := lab.Node(args[0])
	if err != nil {
		return err
	}
	text, err := n.Logs(ctx, strings.Join(args[1:], ""))
	fmt.Print(text)
	return err
}

func cp(_ context.Context, lab *nodes.Lab, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	fromNode, from, isFrom := strings.Cut(args[0], ":")
	toNode, to, isTo := strings.Cut(args[1], ":")
	if isFrom == isTo {
		return errUsage
	}
	if isTo {
		n, err := lab.Node(toNode)
		if err != nil {
			return err
		}
		return n.CopyIn(args[0], to)
	}
	n, err := lab.Node(fromNode)
	if err != nil {
		return err
	}
	return n.CopyOut(from, args[1])
}

func kill(ctx context.Context, lab *nodes.Lab, args []string) error {
	return each(lab, args, func(n *nodes.Node) error { return n.Kill(ctx) })
}

func start(ctx context.Context, lab *nodes.Lab, args []string) error {
	return each(lab, args, func(n *nodes.Node) error { return n.Start(ctx) })
}

func restart(ctx context.Context, lab *nodes.Lab, args []string) error {
	return each(lab, args, func(n *nodes.Node) error { return n.Restart(ctx) })
}

func refresh(_ context.Context, lab *nodes.Lab, args []string) error {
	if len(args) == 0 {
		all, err := lab.Nodes()
		if err != nil {
			return err
		}
		for _, n := range all {
			args = append(args, n.Name())
		}
	}
	return each(lab, args, (*nodes.Node).InstallSlipway)
}

func each(lab *nodes.Lab, names []string, do func(*nodes.Node) error) error {
	if len(names) == 0 {
		return errUsage
	}
	for _, name := range names {
		n, err := lab.Node(name)
		if err != nil {
			return err
		}
		if err := do(n); err != nil {
			return err
		}
	}
	return nil
}

func setUpBuild(flags *flag.FlagSet) runner {
	var spec nodes.NodeSpec
	flags.BoolVar(&spec.Bare, "bare", false, "a node with an init system and nothing that Kubernetes needs")
	withVar(flags, &spec.With)
	virtual := flags.Bool("vm", false, "the disk of virtual machines, instead of a node")
	return func(ctx context.Context, lab *nodes.Lab, args []string) error {
		if len(args) > 0 {
			return errUsage
		}
		if *virtual {
			_, err := lab.Disk(ctx)
			return err
		}
		return lab.Build(ctx, spec)
	}
}

func bundleParts(ctx context.Context, lab *nodes.Lab, args []string) error {
	if len(args) > 0 {
		return errUsage
	}
	dir, err := lab.BundleParts(ctx, "")
	if err == nil {
		fmt.Println(dir)
	}
	return err
}
