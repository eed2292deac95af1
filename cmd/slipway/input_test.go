// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
)

// TestSignalEndsReading: users who type nothing, or name a FIFO without a writer, don't need a second signal.
func TestSignalEndsReading(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, want string
		args       []string
	}{
		{"configuration, standard input", "--config | standard input", []string{"config", "validate", "--config", "-"}},
		{"configuration, FIFO", "--config | " + fifo, []string{"reset", "--dry-run", "--config", fifo}},
		{"token", "--token-file | standard input", []string{"join", "--dry-run", "192.0.2.1:6443", "--token-file", "-"}},
		{"token, FIFO", "--token-file | " + fifo, []string{"join", "--dry-run", "192.0.2.1:6443", "--token-file", fifo}},
	} {
		t.Run(test.name, func(t *testing.T) {
			in, typed := io.Pipe()
			defer typed.Close()
			if slices.Contains(test.args, fifo) {
				defer feed(t, fifo)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			// By then it reads, as a rule. A signal before that ends it just the same.
			time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("interrupt signal received")) })
			var said bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- execute(ctx, "slipway", cli.Streams{In: in, Out: io.Discard, Err: &said}, test.args) }()
			select {
			case code := <-ended:
				line, more, _ := strings.Cut(said.String(), "\n")
				if code != 1 || more != "" || !strings.HasPrefix(line, "slipway: ") {
					t.Errorf("exit code %d, said %q, want one line", code, said.String())
				}
				fact.In(t, line, append(fact.Of(test.want), "interrupt signal")...)
			case <-time.After(20 * time.Second):
				t.Error("it still waits")
			}
		})
	}
}

// feed lets the reader of the FIFO find its end. A FIFO opens for such a writer once somebody has begun to open it for reading.
func feed(t *testing.T, fifo string) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
			return
		}
		if !errors.Is(err, unix.ENXIO) || time.Now().After(deadline) {
			t.Error(err)
			return
		}
	}
}
