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

// standardInput is its name in messages.
const standardInput = "standard input"

// readConfigFile reads the file of --config, - for standard input.
func readConfigFile(ctx context.Context, g *globals, path string) (*config.Source, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readInput(ctx, g, path, config.MaxSize+1)
	return &config.Source{Name: inputName(path), Data: data}, errors.Wrap(err, "--config")
}

// readSecret reads the first line of a file, - for standard input. A secret in
// a file is not seen in the list of processes.
func readSecret(ctx context.Context, g *globals, path string) (string, error) {
	const longest = 4096
	data, err := readInput(ctx, g, path, longest)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line), err
}

// readInput reads a file, - for standard input, at most limit bytes of it.
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

// interruptible is what read returns of the input that is called name, or an
// error once ctx ends: from a terminal or a FIFO nothing may ever come, and a
// signal must not have to wait for it.
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
