// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/tier"
)

// The networks of clusters whose hosts have no IPv4 address.
const (
	podsIPv6       = "fd00:10:244::/56"
	networkingIPv6 = `networking: {podSubnet: "` + podsIPv6 + `", serviceSubnet: "fd00:10:96::/112"}`
)

// TestIPv6 creates a cluster of hosts without an IPv4 address: two control planes, one of which leaves again, and a
// worker. The only addresses in the configuration are the endpoint and the networks of Pods and Services.
func TestIPv6(t *testing.T) {
	tier.OnlyFull(t, "TestHA")
	cp1 := boot(t, podsIPv6)
	cp2, w1 := cp1.another("cp-2", podsIPv6), cp1.another("worker-1", podsIPv6)
	all := []machine{cp1, cp2, w1}
	for _, m := range all {
		m.hasOnlyIPv6(all)
	}
	before := cp2.host()
	cp1.init(document("", networkingIPv6+`
controlPlaneEndpoint: "[fd00:99::11]:6443"`))
	worker, plane := cp1.joinCommands()
	sideBySide(func() { cp2.runs("slipway", "join", plane) }, func() { w1.runs("slipway", "join", worker) })
	for _, m := range all[1:] {
		cp1.ready(m.node.Name())
	}
	cp1.healthy(everything)
	cp1.hasVoters(cp1, cp2)
	cp1.prints("fd00:99::11 fd00:99::12 fd00:99::21", "get", "nodes", "-o",
		`jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}`)
	cp1.prints("fd00:10:96::1", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")

	cp2.reset("--network")
	cp1.hasVoters(cp1)
	cp2.isAs(before)
	if rules := cp2.must("nft", "list", "ruleset"); strings.Contains(rules, "KUBE-") {
		t.Errorf("reset --network has left:\n%s", rules)
	}
}

// hasOnlyIPv6 removes the host's IPv4 addresses, and rewrites its hosts file, which has the endpoint of the control planes.
func (m machine) hasOnlyIPv6(all []machine) {
	m.Helper()
	hosts := "::1 localhost\n"
	for _, other := range all {
		hosts += other.node.IPv6() + " " + other.node.Name() + "\n"
		if strings.HasPrefix(other.node.Name(), "cp-") {
			hosts += other.node.IPv6() + " " + sharedEndpoint + "\n"
		}
	}
	m.write("/etc/hosts", hosts)
	m.must("chmod", "0644", "/etc/hosts")
	m.must("ip", "-4", "address", "flush", "dev", "host0")
}
