// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestSlowResolver: a slow host's resolver gets the time it needs for the endpoint, whose name is an error otherwise.
func TestSlowResolver(t *testing.T) {
	for took, want := range map[time.Duration]struct{ name, endpoint []string }{
		500 * time.Millisecond: {},
		8 * time.Second:        {name: []string{"[WARNING Hostname] | \"node-1\""}},
		time.Minute: {
			name:     []string{"[WARNING Hostname] | \"node-1\""},
			endpoint: []string{"[ERROR ControlPlaneEndpoint] | \"api.example.com\" | controlPlaneEndpoint"},
		},
	} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.node.Cluster.ControlPlaneEndpoint = "api.example.com:6443"
				s.On.LookupHost = func(ctx context.Context, _ string) ([]netip.Addr, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(took):
						return s.Has.Default, nil
					}
				}
				fact.List(t, s.found("Hostname"), want.name...)
				fact.List(t, s.found("ControlPlaneEndpoint"), want.endpoint...)
			})
		})
	}
}
