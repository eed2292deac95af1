// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
)

// TestEndpoint: a port is optional, and so are an IPv6 address's brackets without one.
func TestEndpoint(t *testing.T) {
	for given, want := range map[string]string{
		"api.example.org": "api.example.org:6443", "api.example.org:443": "api.example.org:443",
		"fd00::1": "[fd00::1]:6443", "[fd00::1]": "[fd00::1]:6443", "[fd00::1]:443": "[fd00::1]:443",
	} {
		if got, err := (&addressFlags{endpoint: given}).server(); got != want || err != nil {
			t.Errorf("%s became %s, %v", given, got, err)
		}
	}
}

// TestMoveFlags: a move is neither on trial nor patched.
func TestMoveFlags(t *testing.T) {
	for _, move := range []string{"advertise-address", "node-ip", "endpoint"} {
		for other, value := range map[string]string{"try": "2m", "patches": "/patches"} {
			cmd := newNode(&cli.Globals{})
			cmd.SetArgs([]string{"--" + move, "192.0.2.1", "--" + other, value})
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			cmd.SetContext(t.Context())
			fact.Error(t, cmd.Execute(), move, other, "none")
		}
	}
}
