// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build vm

package vm

import (
	"regexp"
	"strings"

	"github.com/pkg/errors"
)

// rulesPath has the rules that nftables' own service loads.
const rulesPath = "/etc/nftables.conf"

// rules drop everything that comes in but answers and SSH, and everything that's forwarded.
const rules = `table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		iif lo accept
		tcp dport 22 accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
`

// restartsFlannel waits until flannel, which needs the API, has set up the network again.
func (m machine) restartsFlannel() {
	m.Helper()
	m.kubectl("delete", "pods", "--all", "--namespace=kube-flannel")
	m.kubectl("rollout", "status", "--namespace=kube-flannel", "--timeout=5m", "daemonset/kube-flannel-ds")
}

var insertion = regexp.MustCompile("`(nft insert rule [^`]*)`")

// getsFirewall drops what comes in and is forwarded, but for what preflight's remedy accepts. nftables' service stays on until the next
// boot: stopping it would also remove kube-proxy's and flannel's rules.
func (m machine) getsFirewall() {
	m.Helper()
	m.write(rulesPath, rules)
	m.must("systemctl", "start", "nftables")
	var commands [][]string
	m.eventually("preflight to name the rules to insert", podLimit, func() error {
		said, err := m.try("slipway", "preflight", "--network", "flannel")            // fails: this host is a node already
		if commands = insertion.FindAllStringSubmatch(said, -1); len(commands) != 4 { // of TCP, of UDP, from Pods, to Pods
			return errors.Errorf("%s%v", said, err)
		}
		return nil
	})
	for _, c := range commands {
		m.must(strings.Fields(c[1])...)
	}
}

// worksBehindFirewall lets Pods reach each other and the API again behind a firewall. Without the remedy's ports, Pods wouldn't reach
// the API server.
func (m machine) worksBehindFirewall() {
	m.Helper()
	m.must("cp", "--preserve", rulesPath, "/root/rules")
	m.getsFirewall()
	m.restartsFlannel()
	m.asks("client-behind-firewall")
	m.must("nft", "delete", "table", "inet", "filter")
	m.must("cp", "--preserve", "/root/rules", rulesPath)
}
