// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"os"
	"os/exec"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

func (h *Host) RunProgram(ctx context.Context, words []string) error {
	cmd, _ := program.Command(ctx, words[0], words[1:]...)
	cmd.Env = os.Environ()
	var output end
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well, and left a child that keeps its output open
		err = nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if line := output.lastLine(); err != nil && line != "" {
		err = errors.WithMessage(err, line)
	}
	return errors.Wrapf(err, "run %s", words[0])
}

// end keeps the end of a program's output.
type end []byte

const maxOutput = 4 << 10

func (e *end) Write(p []byte) (int, error) {
	*e = append(*e, p...)
	*e = (*e)[max(len(*e)-maxOutput, 0):]
	return len(p), nil
}

func (e *end) lastLine() string {
	text := strings.TrimSpace(string(*e))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
