// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

// runner runs steps and records their costs.
type runner struct{ bill bill }

func (r *runner) step(ctx context.Context, s step) error {
	fmt.Printf("\n== %s\n", s.name)
	var spent cost
	var err error
	var rows []row
	if s.tests != nil {
		rows, spent, err = r.test(ctx, s)
	}
	for _, argv := range s.commands {
		var c cost
		c, err = command(ctx, "", nil, argv)
		if spent = spent.plus(c); err != nil {
			break
		}
	}
	r.bill.add(s, rows, spent)
	return errors.WithMessagef(err, "step %s", s.name)
}

// command runs a program that explains its own failures.
func command(ctx context.Context, dir string, env, argv []string) (cost, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	started := time.Now()
	err := cmd.Run()
	return costOf(cmd, started), errors.Wrapf(err, "%s %s", filepath.Base(argv[0]), argv[len(argv)-1])
}

// costOf returns the cost of a process that has ended, including all descendants it waited for.
func costOf(cmd *exec.Cmd, started time.Time) cost {
	c := cost{wall: time.Since(started)}
	if cmd.ProcessState != nil {
		c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return c
}

// measure runs a package's test program, in that package's directory, and appends its cost to a file. It returns the exit code.
func measure(file string, argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := time.Now()
	err := cmd.Run()
	if failed := note(file, costOf(cmd, started)); failed != nil {
		fmt.Fprintln(os.Stderr, "suite:", failed)
		return 1
	}
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		return 1
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	fmt.Fprintln(os.Stderr, "suite:", err) // a signal
	return 1
}

// note appends a line to the file of costs, in one write because programs end side by side.
func note(file string, c cost) error {
	dir, err := os.Getwd()
	if err != nil {
		return errors.Wrap(err, "cannot tell the package")
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return errors.Wrap(err, "cannot note the cost")
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s\t%d\t%d\n", dir, c.wall, c.cpu)
	return errors.Wrap(err, "cannot note the cost")
}
