// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Slipway turns a Linux host into a Kubernetes node. This package makes the tree of commands (root.go, and a package below it
// for each group) and runs a command, which loads a config.Node, gets its Parts from env, and runs a list of phases.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

func run() int {
	// Files get their final mode on creation, not by a chmod later: a run may be killed in between.
	syscall.Umask(0o022)
	os.Setenv("PATH", completePath(os.Getenv("PATH")))
	// This one stays caught to the end: a reader of the output that ends early, such as `head`, mustn't end a run in the middle of a
	// change. Writes fail instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) { // as nohup(1) asks
		ctx = untilHangup(ctx)
	}
	context.AfterFunc(ctx, stop) // a second SIGINT or SIGTERM ends the program immediately
	return execute(ctx, filepath.Base(os.Args[0]), cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])
}

// untilHangup ends a context with its session. A lost SSH session sends several signals: the first ends the run in order, the others
// do nothing.
func untilHangup(ctx context.Context) context.Context {
	ctx, end := context.WithCancelCause(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		<-hangups
		end(step.ErrHangup)
	}()
	return ctx
}

// completePath adds the directories of administrators' programs to PATH: sudo and cron may leave out /usr/local/bin, which has a
// bundle's programs.
func completePath(path string) string {
	dirs := filepath.SplitList(path)
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

func execute(ctx context.Context, program string, s cli.Streams, args []string) int {
	out := &output{to: s.Out}
	s.Out = ui.NewPrintable(out)
	terminal := onTerminal(&s)
	if terminal == nil { // which has escape sequences of its own
		s.Err = ui.NewPrintable(s.Err)
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
	return cli.CodeOf(err)
}

// onTerminal shows a person the runs on standard error. It returns nil if that's no terminal.
func onTerminal(s *cli.Streams) *ui.Terminal {
	f, ok := s.Err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	t := ui.NewTerminal(f, s.Out)
	s.Err = t
	return t
}

func explain(program string, s cli.Streams, err error) {
	found := fault.Finding{Message: config.RedactSecrets(cli.Shown(program, err.Error())), Remedy: config.RedactSecrets(cli.Shown(program, fault.Remedy(err)))}
	if t, onTerminal := s.Err.(*ui.Terminal); onTerminal {
		t.Failure(program+": "+found.Message, found.Remedy)
		return
	}
	fmt.Fprintf(s.Err, "%s: %s\n", program, found)
}

// output is standard output. It keeps its first error, so phases needn't check their prints, and writes nothing after it, so
// nobody takes a part for the whole.
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
