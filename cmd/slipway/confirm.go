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

// askingPhase is the phase that asks; skipping it skips the question.
const askingPhase = "preflight"

// longestAnswer is in bytes, more than any form of yes has.
const longestAnswer = 64

const (
	undoesNode = "This undoes what init or join did to this host: its Pods are stopped, and its certificates, settings\n" +
		"and copy of the cluster's data are deleted."
	undoesHost = undoesNode + " It also undoes what prepare did: the kubelet's and containerd's\n" +
		"programs and settings are deleted; containerd's images, containers and all its other data, if prepare\n" +
		"installed it; the network interfaces and rules of the Pods, kube-proxy and flannel; and the backups of\n" +
		"etcd that upgrades have made."
)

// confirmReset asks on standard input whether to go on with what text describes, unless --force is given. No answer means
// no.
func confirmReset(ctx context.Context, g *globals, p *parts, text string) error {
	if p.env.Config.Reset.Force {
		return nil
	}
	return p.confirm(func() error {
		return askBefore(ctx, g, text, "--force")
	})
}

// askBefore asks whether to go on with what text describes. skip is the flag that skips the question.
func askBefore(ctx context.Context, g *globals, text, skip string) error {
	fmt.Fprintf(g.streams.err, "%s\nAre you sure you want to proceed? [y/N]: ", text)
	answer, err := readAnswer(ctx, g.streams.in)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(answer, "\n") { // so the terminal is still on that line
		fmt.Fprintln(g.streams.err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.Errorf("nothing was done because the answer was not y; %s skips the question", skip)
	}
	return nil
}

// readAnswer reads a line, or what there is of one.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	return interruptible(ctx, standardInput, func() (string, error) {
		text, _ := bufio.NewReader(io.LimitReader(in, longestAnswer)).ReadString('\n')
		return text, nil
	})
}
