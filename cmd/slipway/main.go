// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Slipway turns a Linux host into a Kubernetes node.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
)

func main() { os.Exit(run()) }

// run is main without the exit. Every failure is 1, as scripts expect, unless
// it is an exitError.
func run() int {
	// What is made has the mode that it shall have from its first moment, and
	// not only once it is changed: a run may be killed in between.
	syscall.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	return execute(ctx, filepath.Base(os.Args[0]), streams{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
}

// execute runs a command line and returns its exit code.
func execute(ctx context.Context, program string, s streams, args []string) int {
	out := &output{to: s.out}
	s.out = out
	err := newRoot(program, s, args).ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("what was to be done is done, but %w; run the command again for it", out.err)
	}
	if err != nil {
		fmt.Fprintf(s.err, "%s: %s\n", program, config.Discreet(shown(program, err.Error())))
		return codeOf(err)
	}
	return 0
}

// exitError is a result that a script asks for by its exit code.
type exitError struct {
	code    int
	message string
}

func (e exitError) Error() string { return e.message }

func codeOf(err error) int {
	var e exitError
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}

// streams are where a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// output is standard output. It keeps its first error: a command that only
// says something in passing, as phases do, need not look for it. Nothing is
// written after that, so that nobody takes a part for the whole.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(p)
	o.err = errors.WithMessage(err, "the output is lost")
	return n, o.err
}

// newRoot makes the program's command for a command line.
func newRoot(program string, s streams, args []string) *cobra.Command {
	g := &globals{program: program, streams: s}
	root := &cobra.Command{
		Use:               program,
		Short:             "Turn a Linux host into a Kubernetes node",
		Args:              cobra.ArbitraryArgs,
		RunE:              offerSubcommands,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return g.apply() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errors.Errorf("%v; see %s --help", err, cmd.CommandPath())
	})
	g.bind(root.PersistentFlags())
	root.SetArgs(args)
	for _, make := range wanted(args) {
		root.AddCommand(make(g))
	}
	honestHelp(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		addCompletions(root)
	}
	return root
}

type maker func(*globals) *cobra.Command

// wanted is the command that the first word names, alone: to make them all
// costs each start of the program a millisecond and a megabyte. Any other word
// gets all: help, completion, a flag, a mistake.
func wanted(args []string) []maker {
	commands := []struct {
		name string
		make maker
	}{
		{"init", newInit},
		{"join", newJoin},
		{"reset", newReset},
		{"config", newConfig},
		{"completion", newCompletion},
		{"token", newToken},
		{"certs", newCerts},
		{"kubeconfig", newKubeconfig},
		{"preflight", newPreflight},
		{"diagnose", newDiagnose},
		{"support-bundle", newSupportBundle},
		{"version", newVersion},
	}
	var all []maker
	for _, c := range commands {
		if len(args) > 0 && args[0] == c.name && c.name != "completion" {
			return []maker{c.make}
		}
		all = append(all, c.make)
	}
	return all
}
