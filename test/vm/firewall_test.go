// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import "strings"

// rules drop everything that comes in but answers, SSH and these ports.
const rules = `table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif lo accept
		tcp dport { PORTS } accept
	}
}
`

// worksBehindFirewall drops what comes in but the ports that the documentation names, and lets Pods reach each other and the API
// again. While they're closed, Pods don't reach the API server.
func (m machine) worksBehindFirewall() {
	m.Helper()
	m.write("/root/rules", strings.Replace(rules, "PORTS", "22, 6443, 10250", 1))
	m.must("nft", "--file", "/root/rules")
	said, _ := m.try("slipway", "preflight")
	m.Logf("preflight behind a firewall says:\n%s", said)
	m.kubectl("delete", "pods", "--all", "--namespace=kube-flannel")
	m.asks("client-behind-firewall")
	m.must("nft", "delete", "table", "inet", "filter")
}
