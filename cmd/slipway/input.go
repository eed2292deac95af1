// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// standardInput is the name of standard input in messages.
const standardInput = config.StandardInput

// readConfigFile reads the file of --config, or standard input for -. Without a path, it returns nil.
func readConfigFile(ctx context.Context, g *globals, path string) (*config.Source, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readInput(ctx, g, path, config.MaxSize+1)
	return &config.Source{Name: inputName(path), Data: data}, errors.Wrap(err, "--config")
}

// readSecret reads the first line of a file, or standard input for -. Unlike a flag, a file does not show up in the list
// of processes.
func readSecret(ctx context.Context, g *globals, path string) (string, error) {
	const longest = 4096
	data, err := readInput(ctx, g, path, longest)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), err
}

// readInput reads at most limit bytes of a file, or of standard input for -.
func readInput(ctx context.Context, g *globals, path string, limit int64) ([]byte, error) {
	return interruptible(ctx, inputName(path), func() ([]byte, error) {
		in := g.streams.in
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

func inputName(path string) string {
	if path == "-" {
		return standardInput
	}
	return path
}

// interruptible returns what read returns, or an error naming the input once ctx ends: a terminal or a FIFO may never
// send anything, and a signal must not have to wait for it.
func interruptible[T any](ctx context.Context, name string, read func() (T, error)) (T, error) {
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
