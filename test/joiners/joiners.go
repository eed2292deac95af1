// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package joiners plays many nodes that join a cluster at once, as far as the
// control plane can tell: each finds the cluster as `slipway join` does, reads
// its configuration, and has a client certificate signed as a kubelet does.
// Nothing is started and nothing written.
//
// A test's own program plays them: it is copied into a node and run there with
// the order in its environment.
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

// variable holds the order, as JSON, for a program that is to play joiners.
const variable = "SLIPWAY_JOINERS"

// limit is for all of it.
const limit = 2 * time.Minute

// Order says which nodes join which cluster.
type Order struct {
	Count    int
	Endpoint string // host:port of an API server
	Token    string
	Pin      string // sha256:HEX of the CA
}

// Report is what came of an order.
type Report struct {
	Wall     time.Duration   // from the first joiner's start to the last one's end
	Each     []time.Duration // of those that joined
	Failed   []string        // why the others did not
	CPU      time.Duration   // the API server's meanwhile
	Requests int             // that the API server answered meanwhile, from any client
}

// Play carries out the order that is in the environment, prints the report,
// and ends the program. It returns where there is none. To be called first of all.
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

// Run has this very program carry out an order on a control plane node, and
// asks the API server there what it cost.
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

// join is one joiner, from its command line to its certificate.
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
