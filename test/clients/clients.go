// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package clients plays clients of a cluster that write all the time, each through a connection of its own, and remember every write
// that was confirmed. In the end they look for all of them.
//
// A test's own program plays them: it's copied into a node, and runs there with the order in its environment.
package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// variable holds the order, as JSON, for a program that plays clients.
const variable = "SLIPWAY_CLIENTS"

// Order says how many clients write, and where.
type Order struct {
	Count      int
	URL        string // of the API, such as https://10.96.0.1
	Kubeconfig string // a file on the node with the credentials
	Interval   time.Duration
}

// Report counts a client's writes, or those of all.
type Report struct {
	Confirmed int
	Repeated  int // writes that a client sent once more because its connection broke
	Delayed   int // answers that said to ask again later
	Failed    []string
	Lost      []string      // writes that were confirmed, and aren't there
	Slowest   time.Duration // the slowest confirmed write
	Gap       time.Duration // the longest time of a client between two confirmed writes
}

// Play carries out the environment's order until SIGTERM, prints the report, and ends the program. Without an order, it returns. It
// must be called first of all.
func Play() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.play(ctx, json.NewEncoder(os.Stdout))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Running are clients at work on a node.
type Running struct {
	stop   context.CancelFunc
	out    *json.Decoder
	closed io.Closer
	said   *bytes.Buffer
}

// Start makes a copy of this program carry out an order on a node. It returns once each client has made a write.
func Start(ctx context.Context, n *nodes.Node, o Order) (*Running, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	const there = "/root/clients"
	if err := n.CopyIn(self, there); err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	in, out := io.Pipe()
	ctx, stop := context.WithCancel(ctx)
	r := &Running{stop: stop, out: json.NewDecoder(in), closed: in, said: &bytes.Buffer{}}
	go func() {
		err := n.Exec(ctx, nodes.Cmd{
			Args: []string{there}, Env: []string{variable + "=" + string(text)}, Stdout: out, Stderr: r.said, CancelSignal: syscall.SIGTERM,
		})
		_ = out.CloseWithError(errors.WithMessage(err, "the clients ended"))
	}()
	var began bool
	if err := r.out.Decode(&began); err != nil {
		stop()
		return nil, errors.Wrap(err, r.said.String())
	}
	return r, nil
}

// Stop ends the clients, and returns what they have seen.
func (r *Running) Stop() (Report, error) {
	defer r.closed.Close()
	r.stop()
	var report Report
	err := r.out.Decode(&report)
	return report, errors.Wrap(err, "the clients' report: "+r.said.String())
}
