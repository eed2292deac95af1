// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTerminal: what a person sees of a phase that ends well, of one below
// another that fails, and of what they say meanwhile. Each line takes the place
// of the live one, which goes on below it.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen, results bytes.Buffer
		u := NewTerminal(&seen, &results)
		in, end := u.Start("certs")
		in.Printf("Generating %q", "ca")
		time.Sleep(2*tick + tick/4)
		_, endOther := u.Start("kubeconfig/admin")
		u.Warnf("swap is on")
		time.Sleep(tick)
		in.Result("the join command")
		end(nil)
		time.Sleep(tick)
		endOther(errors.New("no space"))
		u.Skip("addon", "--skip-phases")
		time.Sleep(3 * tick)
		want := []string{
			`    Generating "ca"`, "\n",
			"⠙ certs 0.1s", "⠹ certs 0.2s",
			"  ! swap is on", "\n",
			"⠸ kubeconfig/admin 0.3s",
			"", // for the result, which may go to the same terminal
			"✓ certs                  0.3s\n",
			"⠼ kubeconfig/admin 0.2s",
			"",
			"✗ kubeconfig/admin       0.2s\n",
			"- addon                  skipped: --skip-phases\n",
		}
		got := strings.ReplaceAll(strings.TrimPrefix(seen.String(), eraseLine), eraseLine, "|")
		if diff := cmp.Diff(strings.ReplaceAll(strings.Join(want, "|"), "|\n", "\n"), got); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
		if results.String() != "the join command\n" {
			t.Errorf("results %q", results.String())
		}
	})
}
