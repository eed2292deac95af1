// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
)

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
