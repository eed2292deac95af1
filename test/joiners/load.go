// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joiners

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// load is the sum of an API server's work since its start.
type load struct {
	cpu      time.Duration
	requests int
}

// loadOf reads the metrics of a control plane node's API server.
func loadOf(ctx context.Context, n *nodes.Node) (load, error) {
	text, err := n.Output(ctx, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/metrics")
	if err != nil {
		return load{}, err
	}
	return parseLoad(text), nil
}

// parseLoad adds up the lines NAME{LABELS} VALUE of two metrics.
func parseLoad(text string) load {
	var l load
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			continue
		}
		switch name, _, _ := strings.Cut(line[:at], "{"); name {
		case "process_cpu_seconds_total":
			l.cpu += time.Duration(value * float64(time.Second))
		case "apiserver_request_total":
			l.requests += int(value)
		}
	}
	return l
}
