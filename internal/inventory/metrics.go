// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
)

// requestedMetric is the metric that breakages reads; the others are several megabytes.
const requestedMetric = "apiserver_requested_deprecated_apis"

// metrics reads which deprecated APIs clients have requested from an API server. Each counts on its own, but only this host's, or
// the one behind all requests, gets the user's credentials, never an address from the API.
func (c *collector) metrics(ctx context.Context) {
	var nodes []string
	for _, component := range c.State.Components {
		if component.Name == manifests.APIServerName && !slices.Contains(nodes, component.Node) {
			nodes = append(nodes, component.Node)
		}
	}
	api, where := c.API, "the API server that was asked"
	switch {
	case len(nodes) == 1:
		where, nodes = manifests.APIServerName+" on "+nodes[0], nil
	case c.Own != nil && c.Here != nil:
		own := func(name string) bool { return name == c.Here.Node.Name }
		api, where, nodes = c.Own, manifests.APIServerName+" on "+c.Here.Node.Name, slices.DeleteFunc(nodes, own)
	}
	if len(nodes) > 0 {
		c.gap(manifests.APIServerName, "metrics of others", "run `slipway upgrade plan` as root on each control plane",
			"requests for deprecated APIs are counted by each API server, and these were not all asked: %s", strings.Join(nodes, ", "))
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var kept bytes.Buffer
	err := api.Read(limited, cluster.Query{Path: "/metrics", Accept: "text/plain"}, func(r io.Reader) error {
		return eachLine(r, func(line []byte) {
			if bytes.Contains(line, []byte(requestedMetric)) {
				kept.Write(line)
				kept.WriteByte('\n')
			}
		})
	})
	if err != nil {
		c.gap(where, "metrics", "look at them there: kubectl get --raw /metrics", "%s: its requests for deprecated APIs were not checked: %v", where, err)
		return
	}
	c.inputs.Metrics = []breakages.File{{Where: where, Data: kept.Bytes()}}
}
