// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"testing"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

// TestFlagsOfRestart: only enable restarts an API server, so only it may meet an operator's edits.
func TestFlagsOfRestart(t *testing.T) {
	for _, cmd := range New(&cli.Globals{}).Commands() {
		for _, flag := range []string{"patches", "ignore-preflight-errors"} {
			if has := cmd.Flags().Lookup(flag) != nil; has != (cmd.Name() == "enable") {
				t.Errorf("%s has --%s: %t", cmd.Name(), flag, has)
			}
		}
	}
}
