// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// nftablesFiles have the rules that nftables' own service loads: Debian's, and those of RHEL and its relatives.
var nftablesFiles = []string{"/etc/nftables.conf", "/etc/sysconfig/nftables.conf"}

// nftRules are the rules of nftables' own service, as far as its file has them.
type nftRules struct {
	file   string
	chains []nftChain
	unseen string // why there may be others
}

// nftChain is a chain with the names of its family and table.
type nftChain struct {
	name, hook string
	drops      bool // by its policy, or by a rule for all packets
}

// nftablesRules returns the rules if they may drop packets.
func nftablesRules(ctx context.Context, h View) (r nftRules, found bool, err error) {
	unit, err := h.Unit(ctx, "nftables.service")
	if err != nil || unit.ActiveState != "active" {
		return r, false, err
	}
	r.file = nftablesFiles[0]
	for _, path := range nftablesFiles {
		if exists(h, path) {
			r.file = path
			break
		}
	}
	data, err := h.ReadFile(r.file)
	if err != nil {
		r.unseen = fmt.Sprintf("%s cannot be read (%v)", r.file, err)
		return r, true, nil
	}
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		text.WriteString(line + "\n")
	}
	rules := text.String()
	r.chains = parseChains(rules)
	if strings.Contains(rules, "include") {
		r.unseen = r.file + " includes other files"
	}
	return r, r.unseen != "" || strings.Contains(rules, "drop") || strings.Contains(rules, "reject"), nil
}

// parseChains understands both of nftables' forms: blocks within a table, and commands that name the table.
// https://www.netfilter.org/projects/nftables/manpage.html
func parseChains(rules string) (chains []nftChain) {
	table := ""
	words := strings.Fields(strings.NewReplacer("{", " { ", "}", " } ", ";", " ; ", "\n", " ; ").Replace(rules))
	for i, word := range words {
		if (word == "drop" || word == "reject") && len(chains) > 0 && forAll(words[:i]) {
			chains[len(chains)-1].drops = true
		}
		rest := words[i+1:]
		end := slices.IndexFunc(rest, func(w string) bool { return w == "{" || w == ";" })
		if end < 1 {
			continue
		}
		switch name, last := strings.Join(rest[:end], " "), len(chains)-1; {
		case word == "table" && end == 1:
			table = "ip " + name
		case word == "table":
			table = name
		case word == "chain" && end == 1:
			chains = append(chains, nftChain{name: table + " " + name})
		case word == "chain" && end == 2:
			chains = append(chains, nftChain{name: "ip " + name})
		case word == "chain":
			chains = append(chains, nftChain{name: name})
		case word == "hook" && last >= 0 && words[i-1] == "filter": // not nat's
			chains[last].hook = rest[0]
		case word == "policy" && last >= 0 && rest[0] == "drop":
			chains[last].drops = true
		}
	}
	return chains
}

// forAll reports whether a rule's verdict is for all packets, given the words before the verdict: no match is there, which would come
// before a counter or a log.
func forAll(before []string) bool {
	for i := len(before); i > 0; i-- {
		if word := before[i-1]; word == ";" || word == "{" {
			return i == len(before) || before[i] == "counter" || before[i] == "log"
		}
	}
	return false
}

// named lists chains that get packets of IP.
func (r nftRules) named(is func(nftChain) bool) (names []string) {
	for _, c := range r.chains {
		if family, _, _ := strings.Cut(c.name, " "); slices.Contains([]string{"inet", "ip", "ip6"}, family) && is(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// dropForwarded are the chains that drop what no rule of theirs accepts. An accepting rule in another chain, such as
// kube-proxy's, doesn't help.
func (r nftRules) dropForwarded() []string {
	return r.named(func(c nftChain) bool { return c.hook == "forward" && c.drops })
}

// forwarding ends the message.
func (r nftRules) forwarding() string {
	text := ""
	if chains := r.dropForwarded(); len(chains) > 0 {
		text = "; it also drops what this host forwards, such as the packets of Pods (chain `" + strings.Join(chains, "`, `") + "`)"
	}
	if r.unseen != "" {
		text += "; not all of its rules were checked for dropping forwarded packets, such as those of Pods: " + r.unseen
	}
	return text
}

// commands insert rules, because a chain may end with a rule that drops. They leave kube-proxy's rules alone, unlike `systemctl reload
// nftables` with the first line of Debian's file.
func (r nftRules) commands(o openings) string {
	var commands []string
	insert := func(chain string, rule ...string) {
		commands = append(commands, "`nft insert rule "+chain+" "+strings.Join(rule, " ")+" accept`")
	}
	input, yours := r.named(func(c nftChain) bool { return c.hook == "input" }), ""
	if len(input) == 0 {
		input, yours = []string{"inet filter input"}, " (with the name of your chain, which `nft list chains` shows)"
	}
	for _, chain := range input {
		for _, protocol := range []string{"tcp", "udp"} {
			if ports := o.nftSet(protocol); ports != "" {
				insert(chain, protocol, "dport", ports)
			}
		}
	}
	for _, chain := range r.dropForwarded() {
		for _, s := range o.podSubnets() {
			family := "ip"
			if strings.Contains(s, ":") || s == anySubnet && strings.HasPrefix(chain, "ip6 ") {
				family = "ip6"
			}
			if strings.HasPrefix(chain, "inet ") || strings.HasPrefix(chain, family+" ") {
				insert(chain, family, "saddr", s)
				insert(chain, family, "daddr", s)
			}
		}
	}
	if len(o.subnets) == 0 && len(r.dropForwarded()) > 0 {
		yours += whereSubnet
	}
	return "accept them now with " + strings.Join(commands, ", ") + yours + ", and at the next boot with the same rules in " + r.file +
		". Don't reload that file on a node: its `flush ruleset` would also remove the rules of kube-proxy and the Pod network"
}

// nftSet has the ports of a protocol.
func (o openings) nftSet(protocol string) string {
	var ports []string
	for _, p := range o.ports {
		if p.protocol == protocol {
			ports = append(ports, p.port)
		}
	}
	if len(ports) < 2 {
		return strings.Join(ports, "")
	}
	return "{ " + strings.Join(ports, ", ") + " }"
}
