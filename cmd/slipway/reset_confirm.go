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

	"github.com/slipway-k8s/slipway/internal/config"
)

// askingPhase is the phase that asks: without it, nothing is asked.
const askingPhase = "preflight"

// longestAnswer is longer than any answer that counts as yes, in bytes.
const longestAnswer = 64

// confirmReset asks whether to go on, and reads the answer from standard input,
// unless the user has said so already or nothing would be done anyway. No answer
// is a no.
func confirmReset(ctx context.Context, g *globals, n *config.Node) error {
	if n.Reset.Force || n.DryRun {
		return nil
	}
	fmt.Fprint(g.streams.err, "This undoes what init or join did to this host: it kills the host's Pods, and\n"+
		"deletes its certificates, its settings and its copy of the cluster's data.\nAre you sure you want to proceed? [y/N]: ")
	answer, err := readAnswer(ctx, g.streams.in)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(answer, "\n") { // so the cursor is still behind the question
		fmt.Fprintln(g.streams.err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.New("nothing was done, because the answer was not y; use --force to reset without being asked")
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
