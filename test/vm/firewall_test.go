// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"strings"

	"github.com/pkg/errors"
)

// rulesPath has the rules that nftables' own service loads.
const rulesPath = "/etc/nftables.conf"

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

// restartsFlannel waits until flannel, which needs the API, has set up the network again.
func (m machine) restartsFlannel() {
	m.Helper()
	m.kubectl("delete", "pods", "--all", "--namespace=kube-flannel")
	m.kubectl("rollout", "status", "--namespace=kube-flannel", "--timeout=5m", "daemonset/kube-flannel-ds")
}

// worksBehindFirewall drops what comes in but the ports that preflight names, and lets Pods reach each other and the API again.
// Without these ports, Pods wouldn't reach the API server. nftables' service stays on until the next boot: stopping it would also
// remove kube-proxy's and flannel's rules.
func (m machine) worksBehindFirewall() {
	m.Helper()
	m.must("cp", "--preserve", rulesPath, "/root/rules")
	m.write(rulesPath, strings.Replace(rules, "PORTS", "22, 6443, 10250", 1))
	m.must("systemctl", "start", "nftables")
	m.eventually("preflight to name the ports to open", podLimit, func() error {
		said, err := m.try("slipway", "preflight") // fails: this host is a node already
		if !strings.Contains(said, "{ 6443, 10250 }") {
			return errors.Errorf("%s%v", said, err)
		}
		return nil
	})
	m.restartsFlannel()
	m.asks("client-behind-firewall")
	m.must("nft", "delete", "table", "inet", "filter")
	m.must("cp", "--preserve", "/root/rules", rulesPath)
}
