// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// longestAnswer is in bytes, more than any form of yes needs.
const longestAnswer = 64

// AskBefore shows text and asks whether to proceed. skip is the flag that skips the question.
func AskBefore(ctx context.Context, g *Globals, text, skip string) error {
	fmt.Fprintf(g.Streams.Err, "%s\nAre you sure you want to proceed? [y/N]: ", text)
	answer, err := Interruptible(ctx, StandardInput, func() (string, error) {
		text, _ := bufio.NewReader(io.LimitReader(g.Streams.In, longestAnswer)).ReadString('\n')
		return text, nil
	})
	if err != nil {
		return err
	}
	if !strings.HasSuffix(answer, "\n") { // so the terminal is still on that line
		fmt.Fprintln(g.Streams.Err)
	}
	if !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.Errorf("nothing was done because the answer was not y; %s skips the question", skip)
	}
	return nil
}

// StandardInput is the name of standard input in messages.
const StandardInput = config.StandardInput

// ReadConfigFile reads the file of --config, or standard input for -. Without a path, it returns nil.
func ReadConfigFile(ctx context.Context, g *Globals, path string) (*config.Source, error) {
	if path == "" {
		return nil, nil
	}
	data, err := ReadInput(ctx, g, path, config.MaxSize+1)
	return &config.Source{Name: InputName(path), Data: data}, errors.Wrap(err, "--config")
}

// ReadSecret reads the first line of a file, or of standard input for -. Unlike a flag, a file isn't in the list of processes.
func ReadSecret(ctx context.Context, g *Globals, path string) (string, error) {
	const longest = 4096
	data, err := ReadInput(ctx, g, path, longest)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), err
}

// ReadInput reads at most limit bytes of a file, or of standard input for -.
func ReadInput(ctx context.Context, g *Globals, path string, limit int64) ([]byte, error) {
	return Interruptible(ctx, InputName(path), func() ([]byte, error) {
		in := g.Streams.In
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		return io.ReadAll(io.LimitReader(in, limit))
	})
}

func InputName(path string) string {
	if path == "-" {
		return StandardInput
	}
	return path
}

// Interruptible returns the result of read, or an error with the input's name once ctx ends: a terminal or a FIFO may never send
// anything, and a signal mustn't wait for it.
func Interruptible[T any](ctx context.Context, name string, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := read()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, errors.WithMessage(context.Cause(ctx), "waiting for "+name)
	}
}
