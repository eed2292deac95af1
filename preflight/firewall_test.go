// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

func (h *fakeHost) firewalld() {
	h.Has.Units["firewalld.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
}

func (h *fakeHost) ufw() { h.put("/etc/ufw/ufw.conf", "# ufw\nENABLED=yes\n") }

// nftables starts nftables' service with rules.
func (h *fakeHost) nftables(rules string) {
	h.Has.Units["nftables.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
	h.put("/etc/nftables.conf", rules)
}

// firewallFindings are those of a node's check, or of the preparation's without a node.
func firewallFindings(t *testing.T, h *fakeHost, n *config.Node) []string {
	t.Helper()
	var checks []Check
	switch {
	case n == nil:
		checks = Prepare(&config.Machine{}, Preparation{})
	case n.Join == nil:
		checks = Init(n, nil)
	case n.ControlPlane:
		checks = JoinControlPlane(n, nil)
	default:
		checks = JoinWorker(n, nil)
	}
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "Firewalld" })
	if i < 0 {
		t.Fatalf("no check of firewalls among %v", names(checks))
	}
	return texts(checks[i].findings(t.Context(), h))
}

// TestFirewallPorts: each node names all ports that others need of it, with a command that opens them.
func TestFirewallPorts(t *testing.T) {
	flannel, port, external, file := controlPlaneNode(), controlPlaneNode(), controlPlaneNode(), controlPlaneNode()
	flannel.NetworkAddOn.Name, file.NetworkAddOn.Name = config.Flannel, "network.yaml"
	port.BindPort, port.Kubelet.Port = 8443, 20250
	external.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}}
	worker := workerNode()
	worker.Cluster.Networking.PodSubnet = "10.244.0.0/16,fd00:10:244::/56"
	const begun = "[WARNING Firewalld] | is active | "
	for _, tt := range []struct {
		name     string
		node     *config.Node
		firewall func(h *fakeHost)
		want     string
		not      []string
	}{
		{"init with flannel", flannel, (*fakeHost).firewalld, begun + "6443/tcp | 2379-2380/tcp | 10250/tcp | 8472/udp | " +
			"`firewall-cmd --permanent --add-port=6443/tcp --add-port=2379-2380/tcp --add-port=10250/tcp --add-port=8472/udp && " +
			"firewall-cmd --permanent --zone=trusted --add-source=10.244.0.0/16 && firewall-cmd --reload` | VXLAN", nil},
		{"init with other ports", port, (*fakeHost).firewalld, begun + "8443/tcp | 20250/tcp | flannel", []string{"6443", "10250"}},
		{"init with an external etcd", external, (*fakeHost).firewalld, begun + "6443/tcp | 10250/tcp", []string{"2379"}},
		{"init with another network", file, (*fakeHost).firewalld, begun + "10250/tcp", []string{"8472", "VXLAN"}},
		{"a joining control plane", joiningControlPlane(), (*fakeHost).ufw, begun +
			"flannel | `ufw allow 6443/tcp && ufw allow 2379:2380/tcp && ufw allow 10250/tcp && ufw allow 8472/udp && ufw route allow from 10.244.0.0/16 && ufw route allow to 10.244.0.0/16`", nil},
		{"a worker", worker, (*fakeHost).firewalld, begun + "10250/tcp | 8472/udp | --add-port=8472/udp | --add-source=10.244.0.0/16 | --add-source=fd00:10:244::/56",
			[]string{"6443", "2379"}},
		{"the preparation", nil, (*fakeHost).firewalld, begun + "6443/tcp | 2379-2380/tcp | 10250/tcp | 8472/udp | flannel | " +
			"--add-port=8472/udp && firewall-cmd --reload` | `firewall-cmd --permanent --zone=trusted --add-source=POD-SUBNET && firewall-cmd --reload`", nil},
		{"no systemd", controlPlaneNode(), func(h *fakeHost) { h.Fail["Unit"] = errors.New("no bus") },
			"[WARNING Firewalld] | 6443/tcp | 2379-2380/tcp | 10250/tcp | 8472/udp | no bus", nil},
		{"systemd doesn't say whether nftables' service is on", controlPlaneNode(), func(h *fakeHost) {
			h.On.Unit = func(_ context.Context, name string) (host.UnitState, error) {
				if name == "nftables.service" {
					return host.UnitState{}, errors.New("no answer")
				}
				return host.UnitState{LoadState: "loaded"}, nil
			}
		}, "[WARNING Firewalld] | 6443/tcp | 10250/tcp | no answer", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := healthy(t)
			tt.firewall(h)
			got := firewallFindings(t, h, tt.node)
			fact.List(t, got, tt.want)
			fact.NotIn(t, got[0], tt.not...)
		})
	}
	off := healthy(t)
	off.put("/etc/ufw/ufw.conf", "ENABLED=no\n")
	fact.List(t, firewallFindings(t, off, flannel))
}

// TestNftables: the remedy inserts rules into the chains at hand, and never loads Debian's file again, which flushes kube-proxy's
// rules. Chains that drop forwarded packets are named.
func TestNftables(t *testing.T) {
	insertedInto := func(chain string) string {
		return strings.ReplaceAll("`nft insert rule CHAIN tcp dport { 6443, 2379-2380, 10250 } accept` | `nft insert rule CHAIN udp dport 8472 accept` | /etc/nftables.conf", "CHAIN", chain)
	}
	for _, tt := range []struct {
		name, rules string
		want        []string
		not         []string
	}{
		{"Debian's file", "flush ruleset\n\ntable inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter;\n\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter;\n\t}\n}\n# drop\n",
			nil, nil},
		{"input drops", "table inet fw {\n chain in { type filter hook input priority filter; policy drop; }\n chain fwd { type filter hook forward priority filter; policy accept; }\n}",
			[]string{"nftables | " + insertedInto("inet fw in")}, []string{"fwd", "checked", "systemctl reload"}},
		{"both drop", "table filter {\n chain input {\n type filter hook input priority 0\n policy drop\n }\n chain forward { type filter hook forward priority 0; policy drop; }\n}",
			[]string{"`ip filter forward` | `nft insert rule ip filter input tcp dport { 6443, 2379-2380, 10250 } accept` | `nft insert rule ip filter forward ip saddr 10.244.0.0/16 accept` | `nft insert rule ip filter forward ip daddr 10.244.0.0/16 accept`"}, nil},
		{"IPv6's forward drops", "table ip6 f { chain in { type filter hook input priority 0; }; chain fwd { type filter hook forward priority 0; policy drop; }; }",
			[]string{"`ip6 f fwd` | " + insertedInto("ip6 f in")}, []string{"saddr"}},
		{"only forward drops, by commands", "add table inet f\nadd chain inet f routed { type filter hook forward priority 0; policy drop; }",
			[]string{"`inet f routed` | " + insertedInto("inet filter input") + " | `nft list chains`"}, nil},
		{"forward ends with a rule for all packets", "table inet f {\n chain fwd { type filter hook forward priority 0; policy accept;\n ct state established accept\n log prefix \"no\" counter packets 1 bytes 52 reject with icmpx admin-prohibited\n }\n}",
			[]string{"`inet f fwd` | `nft insert rule inet f fwd ip saddr 10.244.0.0/16 accept`"}, nil},
		{"forward drops some packets", "table inet f { chain fwd { type filter hook forward priority 0; ct state invalid drop; }; }",
			[]string{insertedInto("inet filter input")}, []string{"fwd"}},
		{"other families", "table arp filter { chain input { type filter hook input priority 0; policy drop; }; }\ntable bridge b { chain f { type filter hook forward priority 0; policy drop; }; }",
			[]string{insertedInto("inet filter input")}, []string{"arp", "bridge"}},
		{"other files", "include \"/etc/nftables.d/*.nft\"", []string{"checked | /etc/nftables.conf | " + insertedInto("inet filter input")}, nil},
		{"another distribution", "", []string{"checked | /etc/nftables.conf | " + insertedInto("inet filter input")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, n := healthy(t), controlPlaneNode()
			n.NetworkAddOn.Name = config.Flannel
			h.nftables(tt.rules)
			if tt.rules == "" {
				h.remove("/etc/nftables.conf")
			}
			got := firewallFindings(t, h, n)
			fact.List(t, got, tt.want...)
			for _, text := range got {
				fact.NotIn(t, text, tt.not...)
			}
		})
	}
}

func TestParseChains(t *testing.T) {
	for rules, want := range map[string][]nftChain{
		"table ip6 a { chain b { type filter hook forward priority 0; policy drop; } }": {{"ip6 a b", "forward", true}},
		"table a { chain b { tcp dport 22 accept; }; }":                                 {{name: "ip a b"}},
		"add chain a b { type filter hook input priority 0 ; }":                         {{name: "ip a b", hook: "input"}},
		"add chain a b { type nat hook input priority 0 ; }":                            {{name: "ip a b"}},
		"table": nil, "chain": nil, "hook": nil, "policy drop": nil, "table {": nil, "": nil,
	} {
		if diff := cmp.Diff(want, parseChains(rules), cmp.AllowUnexported(nftChain{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", rules, diff)
		}
	}
}
