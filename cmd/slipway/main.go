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
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// run runs the command line of this process, and returns its exit code.
func run() int {
	// Files get their final mode when they are created, not by a chmod later: a run may be killed in between.
	syscall.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	return execute(ctx, filepath.Base(os.Args[0]), streams{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
}

// execute runs a command line and returns its exit code.
func execute(ctx context.Context, program string, s streams, args []string) int {
	out := &output{to: s.out}
	s.out = ui.NewPrintable(out)
	terminal := onTerminal(&s)
	if terminal == nil { // which has escape sequences of its own
		s.err = ui.NewPrintable(s.err)
	}
	err := newRoot(program, s, args).ExecuteContext(ctx)
	if terminal != nil {
		terminal.Close()
	}
	if err == nil && out.err != nil {
		err = fault.WithRemedy(errors.WithMessage(out.err, "the command succeeded, but its output is lost"), "run it again to get the output")
	}
	if err != nil {
		explain(program, s, err)
	}
	return codeOf(err)
}

// onTerminal makes standard error show runs to a person, if it is a terminal. It
// is nil otherwise.
func onTerminal(s *streams) *ui.Terminal {
	f, ok := s.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	t := ui.NewTerminal(f, s.out)
	s.err = t
	return t
}

// explain prints why a command failed and, if the error knows, what to do about
// it.
func explain(program string, s streams, err error) {
	found := fault.Fault{Message: config.Discreet(shown(program, err.Error())), Remedy: config.Discreet(shown(program, fault.Remedy(err)))}
	if t, onTerminal := s.err.(*ui.Terminal); onTerminal {
		t.Failure(program+": "+found.Message, found.Remedy)
		return
	}
	fmt.Fprintf(s.err, "%s: %s\n", program, found)
}

// streams are where a command reads and writes.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// output is standard output. It keeps its first error, so that phases need not check what they print. It writes nothing
// after an error, so that nobody takes a part for the whole.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.to.Write(p)
	o.err = errors.WithMessage(err, "cannot write the output")
	return n, o.err
}

// newRoot makes the root command for a command line.
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
	root.SetFlagErrorFunc(flagError)
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

// wanted is only the command that the first argument names: making all of them costs each start a millisecond and a
// megabyte. Anything else (help, completion, a flag, a mistake) gets all commands.
func wanted(args []string) []maker {
	commands := []struct {
		name string
		make maker
	}{
		{"up", newUp},
		{"init", newInit},
		{"join", newJoin},
		{"host", newHost},
		{"reset", newReset},
		{"down", newDown},
		{"upgrade", newUpgrade},
		{"config", newConfig},
		{"completion", newCompletion},
		{"token", newToken},
		{"certs", newCerts},
		{"kubeconfig", newKubeconfig},
		{"preflight", newPreflight},
		{"diagnose", newDiagnose},
		{"support-bundle", newSupportBundle},
		{"bundle", newBundle},
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
