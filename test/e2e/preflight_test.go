// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"slices"
)

// passesPreflight runs all checks of init on the node, and allows only findings that are true of a lab node: it shares
// the host's kernel, which has cgroup v1, there are routes to the Pods of other nodes, and other tests use the disk at
// the same time.
func (m machine) passesPreflight(config string) {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	out := m.must("slipway", "preflight", "--config", "/root/slipway.yaml", "-o", "json")
	var found struct {
		Seconds float64
		Checks  []struct {
			Name, Result, Message string
			Seconds               float64
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		m.Fatalf("preflight: %v:\n%s", err, out)
	}
	slowest := found.Checks[0]
	for _, c := range found.Checks {
		if c.Seconds > slowest.Seconds {
			slowest = c
		}
		if c.Result != "ok" {
			m.Logf("preflight: %s %s: %s", c.Result, c.Name, c.Message)
		}
		if c.Result != "ok" && !slices.Contains([]string{"SystemVerification", "PodSubnetRoutes", "EtcdDisk", "DiskSpace-runtime"}, c.Name) {
			m.Errorf("preflight of a suitable node: %s %s: %s", c.Result, c.Name, c.Message)
		}
	}
	m.Logf("preflight: %d checks in %.3f s, the slowest %s with %.3f s", len(found.Checks), found.Seconds, slowest.Name, slowest.Seconds)
}
