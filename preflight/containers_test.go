// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"os"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
)

// TestHiddenProcesses: with hidepid, only root sees the first process. A plan by another user leaves the check out.
func TestHiddenProcesses(t *testing.T) {
	s := newScene(t)
	s.put("/proc/self/cmdline", "slipway\x00")
	if os.Getuid() == 0 { // otherwise, the directory belongs to another user already
		if err := os.Chown(s.Root+"/proc/self", 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, noContainers(t.Context(), plan.NewOverlay(s.fakeHost, func(host.Action) {})), "[SKIPPED ] | root")
	s.remove("/proc/self")
	expect(t, noContainers(t.Context(), s.fakeHost), "[ERROR ] | /proc")
}
