// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/joiners"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestJoinMany lets 20 workers discover the cluster and bootstrap their TLS at the same time, against one control
// plane.
func TestJoinMany(t *testing.T) {
	tier.OnlyFull(t, "TestWorkers")
	m := boot(t)
	args := strings.Fields(strings.ReplaceAll(m.init(document("", podSubnet)), "\\\n", " "))
	after := func(flag string) string { return args[slices.Index(args, flag)+1] }
	const many = 20
	report, err := joiners.Run(t.Context(), m.node, joiners.Order{
		Count: many, Endpoint: after("join"), Token: after("--token"), Pin: after("--discovery-token-ca-cert-hash"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range report.Failed {
		t.Error(why)
	}
	if len(report.Each) != many {
		t.Errorf("%d of %d joined", len(report.Each), many)
	}
	t.Logf("%d joined within %s; the API server took %s of processor time and answered %d requests",
		len(report.Each), report.Wall, report.CPU, report.Requests)
	signed := m.kubectl("get", "csr", "-o", `jsonpath={range .items[?(@.status.certificate)]}{.spec.username}{"\n"}{end}`)
	if got := strings.Count(signed, "system:bootstrap:"); got < many {
		t.Errorf("%d requests were signed, want %d", got, many)
	}
}
