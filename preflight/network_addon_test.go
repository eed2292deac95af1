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

// flannelRows are hosts on which `init --network flannel` is called.
func flannelRows() []row {
	const (
		bridge4 = "/proc/sys/net/bridge/bridge-nf-call-iptables"
		module  = "[ERROR Flannel]: the kernel module br_netfilter is not loaded, and flannel does not start without it\n" +
			"  run `modprobe br_netfilter`, and add br_netfilter to /etc/modules-load.d/k8s.conf; `slipway host prepare` does both"
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
		return func(s scene) { s.held[8081] = host.Process{Name: by, PID: 7} }
	}
	return []row{
		{"Flannel", "all is there", with(func(scene) {}), nil},
		{"Flannel", "no module", with(func(s scene) { delete(s.files, bridge4[1:]) }), []string{module}},
		{"Flannel", "no module, and none needed", with(func(s scene) {
			delete(s.files, bridge4[1:])
			s.node.KubeProxy.Mode = "nftables"
		}), nil},
		{"Flannel", "no default route", with(func(s scene) { s.addresses = nil }),
			[]string{"[ERROR Flannel]: this host has no default route of IPv4, which flannel needs because the Pod network has addresses of it\n" +
				"  add one, even to a gateway that is not there: `ip route add default via ADDRESS`; or leave IPv4 out of the Pod network"}},
		{"Flannel", "dual stack", with(func(s scene) {
			dual(s)
			s.addresses = append(s.addresses, netip.MustParseAddr("2001:db8::10"))
		}), nil},
		{"Flannel", "dual stack with one default route", with(dual),
			[]string{"[ERROR Flannel]: this host has no default route of IPv6, which flannel needs because the Pod network has addresses of it\n" +
				"  add one, even to a gateway that is not there: `ip route add default via ADDRESS`; or leave IPv6 out of the Pod network"}},
		{"Flannel", "routes that cannot be read", with(func(s scene) { s.addresses, s.unknown["default route"] = nil, errors.New("no netlink") }),
			[]string{"[WARNING Flannel]: cannot read this host's default route of IPv4: no netlink\n  check it with `ip route`"}},
		{"Flannel", "a foreign program on its port", with(held("nginx")),
			[]string{"[ERROR Flannel]: port 8081, which flannel needs, is held by nginx (process 7)\n  stop that program, or give it another port"}},
		{"Flannel", "networks that come after its own", with(func(s scene) {
			s.put(config.FlannelPluginsPath, "{}")
			s.put("/etc/cni/net.d/10-lab.conflist", "{}")
			s.put("/etc/cni/net.d/05-notes.txt", "")
		}), nil},
		{"Flannel", "a network that comes before its own", with(func(s scene) { s.put("/etc/cni/net.d/10-calico.conflist", "{}") }),
			[]string{"[ERROR Flannel]: /etc/cni/net.d/10-calico.conflist configures another Pod network, and the container runtime uses it in the place of flannel's 10-flannel.conflist, which comes after it\n" +
				"  if nothing needs it, move it out of /etc/cni/net.d; or leave out --network flannel, and keep that network"}},
		{"Flannel", "networks that cannot be seen", with(func(s scene) { s.unreadable = map[string]bool{"/etc/cni/net.d": true} }),
			[]string{"[WARNING Flannel]: cannot see whether another network's configuration comes before flannel's: open /etc/cni/net.d: permission denied\n  look into /etc/cni/net.d"}},
		{"Flannel", "an earlier run's flannel", with(held("flanneld")), []string{"flannel is already running (process 7)"}},
	}
}
