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
	"syscall"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

func main() { os.Exit(run()) }

// run is main without the exit. Every failure is 1, as scripts expect, unless
// it is an exitError.
func run() int {
	// New files have their final mode from the first moment: a run may be killed
	// before it can change it.
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
	terminal := onTerminal(program, &s)
	err := newRoot(program, s, args).ExecuteContext(ctx)
	if terminal != nil {
		terminal.Close()
	}
	if err == nil && out.err != nil {
		err = errors.Errorf("the command did its work, but %v; run it again to get the output", out.err)
	}
	if err != nil {
		explain(program, s, err)
	}
	return codeOf(err)
}

// onTerminal makes standard error show runs to a person, if it is a terminal. It
// is nil otherwise.
func onTerminal(program string, s *streams) *ui.Terminal {
	f, ok := s.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	t := ui.NewTerminal(program, f, s.out)
	s.err = t
	return t
}

// remedied is an error that says what to do about it.
type remedied interface{ Remedy() string }

// explain prints why a command failed and, if the error knows, what to do about
// it.
func explain(program string, s streams, err error) {
	message, remedy := config.Discreet(shown(program, err.Error())), ""
	var r remedied
	if errors.As(err, &r) {
		remedy = config.Discreet(shown(program, r.Remedy()))
	}
	switch t, onTerminal := s.err.(*ui.Terminal); {
	case onTerminal:
		t.Failure(message, remedy)
	case remedy != "":
		fmt.Fprintf(s.err, "%s: %s\n  %s\n", program, message, remedy)
	default:
		fmt.Fprintf(s.err, "%s: %s\n", program, message)
	}
}

// exitError is a result that scripts read from the exit code.
type exitError struct {
	code    int
	message string
}

func (e exitError) Error() string { return e.message }

func codeOf(err error) int {
	var e exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
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

// output is standard output. It keeps its first error, so that phases, which
// write results on the way, need not handle it. Nothing is written after that:
// output with a gap could be taken for complete.
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
	return root
}

type maker func(*globals) *cobra.Command

// wanted returns only the command that the first word names: making all of them
// costs each start of the program a millisecond and a megabyte. Any other word,
// such as help, completion, a flag or a mistake, gets them all.
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
