// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package joiners plays many nodes that join a cluster at once, as far as the control plane can see: each finds the cluster as
// `slipway join` does, reads its configuration, and gets a client certificate signed as a kubelet does. Nothing is started, and
// nothing is written.
//
// A test's own program plays them: it's copied into a node, and runs there with the order in its environment.
package joiners

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// variable holds the order, as JSON, for a program that plays joiners.
const variable = "SLIPWAY_JOINERS"

// limit bounds the whole order.
const limit = 2 * time.Minute

// Order says how many nodes join which cluster.
type Order struct {
	Count    int
	Endpoint string // host:port of an API server
	Token    string
	Pin      string // sha256:HEX of the CA
}

// Report is the result of an order.
type Report struct {
	Wall     time.Duration   // from the first joiner's start to the last's end
	Each     []time.Duration // of successful joins
	Failed   []string        // the others' errors
	CPU      time.Duration   // the API server's meanwhile
	Requests int             // answered by the API server meanwhile, from any client
}

// Play carries out the environment's order, prints the report, and ends the program. Without an order, it returns. It must be
// called first of all.
func Play() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(o.play())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run makes a copy of this program carry out an order on a control plane node, and asks the API server there for the cost.
func Run(ctx context.Context, n *nodes.Node, o Order) (Report, error) {
	var report Report
	self, err := os.Executable()
	if err != nil {
		return report, err
	}
	const there = "/root/joiners"
	if err := n.CopyIn(self, there); err != nil {
		return report, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return report, err
	}
	before, err := loadOf(ctx, n)
	if err != nil {
		return report, err
	}
	var out, said bytes.Buffer
	err = n.Exec(ctx, nodes.Cmd{Args: []string{there}, Env: []string{variable + "=" + string(text)}, Stdout: &out, Stderr: &said})
	if err != nil {
		return report, errors.Wrap(err, said.String())
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return report, errors.Wrap(err, out.String())
	}
	after, err := loadOf(ctx, n)
	report.CPU, report.Requests = after.cpu-before.cpu, after.requests-before.requests
	return report, err
}

func (o Order) play() Report {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var report Report
	var mu sync.Mutex
	var all sync.WaitGroup
	started := time.Now()
	for i := range o.Count {
		all.Go(func() {
			err := o.join(ctx, fmt.Sprintf("joiner-%d", i+1))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				report.Failed = append(report.Failed, err.Error())
				return
			}
			report.Each = append(report.Each, time.Since(started))
		})
	}
	all.Wait()
	report.Wall = time.Since(started)
	return report
}

// join plays one joiner, from its command line to its certificate.
func (o Order) join(ctx context.Context, name string) error {
	opts := config.Options{Facts: config.HostFacts{Hostname: name}}
	self, _, err := config.LoadJoin(nil, config.JoinFlags{
		Given:    []string{"token", "discovery-token-ca-cert-hash", "node-name", "cri-socket"},
		Endpoint: o.Endpoint, Token: o.Token, CACertHashes: []string{o.Pin}, NodeName: name, CRISocket: "unix:///run/containerd/containerd.sock",
	}, opts)
	if err != nil {
		return err
	}
	d := &joining.Discovery{
		Host: linux.New(), UI: ui.NewLines(io.Discard, io.Discard), Options: opts,
		Connect: func(kubeconfig []byte) cluster.Cluster {
			return cluster.New(cluster.Options{
				Kubeconfig: "of " + name, Timeout: limit,
				ReadFile: func(string) ([]byte, error) { return kubeconfig, nil },
			})
		},
	}
	node, _, err := d.Node(ctx, self)
	if err != nil {
		return errors.Wrap(err, name)
	}
	return errors.Wrap(bootstrap(ctx, []byte(node.Join.Kubeconfig.Reveal()), node.Name), name)
}
