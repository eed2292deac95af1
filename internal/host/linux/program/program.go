// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package program runs programs on the real host, without a shell and in the C locale: Run returns the output, and Command
// prepares a process. Errors include the first line that the program wrote to standard error.
package program

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// Command is a program with a minimal environment: it speaks English, and learns nothing from ours. explain adds the first line
// of the program's complaint to an error.
func Command(ctx context.Context, name string, args ...string) (cmd *exec.Cmd, explain func(error) error) {
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.WaitDelay = 5 * time.Second // for children that keep its output open
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	return cmd, func(err error) error {
		if line, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n"); line != "" {
			return errors.WithMessage(err, line)
		}
		return err
	}
}

// Run runs a program with an input, and returns its output.
func Run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd, explain := Command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout = &out
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Wrapf(context.Cause(ctx), "it did not finish within %s", time.Since(began).Round(time.Millisecond))
	}
	return out.String(), errors.Wrapf(explain(err), "run %s", name)
}
