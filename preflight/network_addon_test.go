// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

func TestFlannel(t *testing.T) {
	for _, r := range flannelRows() {
		r.run(t)
	}
}

// flannelRows are hosts on which `init --network flannel` runs.
func flannelRows() []row {
	const (
		bridge4 = "/proc/sys/net/bridge/bridge-nf-call-iptables"
		module  = "[ERROR Flannel] | br_netfilter | flannel | " +
			"`modprobe br_netfilter` | /etc/modules-load.d/k8s.conf | `slipway host prepare`"
	)
	with := func(change func(s scene)) func(s scene) {
		return func(s scene) {
			s.node.NetworkAddOn.Name = config.Flannel
			s.node.Cluster.Networking.PodSubnet = "10.244.0.0/16"
			s.put(bridge4, "1\n")
			change(s)
		}
	}
	dual := func(s scene) {
		s.node.Cluster.Networking.PodSubnet = "10.244.0.0/16,fd00:10:244::/56"
		s.put("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "1\n")
	}
	held := func(by string) func(s scene) {
		return func(s scene) { s.Has.Held[8081] = host.Process{Name: by, PID: 7} }
	}
	return []row{
		{"Flannel", "all is there", with(func(scene) {}), nil},
		{"Flannel", "no module", with(func(s scene) { s.remove(bridge4) }), []string{module}},
		{"Flannel", "no module, and none needed", with(func(s scene) {
			s.remove(bridge4)
			s.node.KubeProxy.Mode = "nftables"
		}), nil},
		{"Flannel", "no default route", with(func(s scene) { s.Has.Default = nil }),
			[]string{"[ERROR Flannel] | IPv4 | flannel | " +
				"`ip route add default via ADDRESS` | IPv4"}},
		{"Flannel", "dual stack", with(func(s scene) {
			dual(s)
			s.Has.Default = append(s.Has.Default, netip.MustParseAddr("2001:db8::10"))
		}), nil},
		{"Flannel", "dual stack with one default route", with(dual),
			[]string{"[ERROR Flannel] | IPv6 | flannel | " +
				"`ip route add default via ADDRESS` | IPv6"}},
		{"Flannel", "routes that cannot be read", with(func(s scene) { s.Has.Default, s.Fail["DefaultAddress"] = nil, errors.New("no netlink") }),
			[]string{"[WARNING Flannel] | IPv4 | no netlink | `ip route`"}},
		{"Flannel", "a foreign program on its port", with(held("nginx")),
			[]string{"[ERROR Flannel] | port 8081 | flannel | nginx | process 7"}},
		{"Flannel", "networks that come after its own", with(func(s scene) {
			s.put(config.FlannelPluginsPath, "{}")
			s.put("/etc/cni/net.d/10-lab.conflist", "{}")
			s.put("/etc/cni/net.d/05-notes.txt", "")
		}), nil},
		{"Flannel", "a network that comes before its own", with(func(s scene) { s.put("/etc/cni/net.d/10-calico.conflist", "{}") }),
			[]string{"[ERROR Flannel] | /etc/cni/net.d/10-calico.conflist | flannel | 10-flannel.conflist | " +
				"/etc/cni/net.d | --network flannel"}},
		{"Flannel", "networks that cannot be seen", with(func(s scene) { s.unreadable("/etc/cni/net.d") }),
			[]string{"[WARNING Flannel] | flannel | /etc/cni/net.d | permission denied"}},
		{"Flannel", "an earlier run's flannel", with(held("flanneld")), []string{"[NOTE Flannel] | flannel | process 7"}},
	}
}
