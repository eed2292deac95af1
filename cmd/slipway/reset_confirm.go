// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// askingPhase is the phase that asks: who skips it is not asked.
const askingPhase = "preflight"

// longestAnswer is more than any that counts as yes, in bytes.
const longestAnswer = 64

// confirmReset asks on standard input whether to go on, unless --force is given. No answer means no.
func confirmReset(ctx context.Context, g *globals, p *parts) error {
	if p.env.Config.Reset.Force {
		return nil
	}
	return p.confirm(func() error { return askBeforeReset(ctx, g) })
}

func askBeforeReset(ctx context.Context, g *globals) error {
	fmt.Fprint(g.streams.err, "What init or join did to this host will be undone. Its Pods are killed, and its certificates, its\n"+
		"settings and its copy of the cluster's data are deleted.\nAre you sure you want to proceed? [y/N]: ")
	answer, err := readAnswer(ctx, g.streams.in)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(answer, "\n") { // nor has the terminal one
		fmt.Fprintln(g.streams.err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New("nothing was done, as the answer was not y; --force goes on without a question")
	}
	return nil
}

// readAnswer reads a line.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	return interruptible(ctx, standardInput, func() (string, error) {
		text, _ := bufio.NewReader(io.LimitReader(in, longestAnswer)).ReadString('\n') // the end of the input ends the answer
		return text, nil
	})
}
