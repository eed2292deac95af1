// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

func dnsLoopRows() []row {
	const check, etc, other = "DNSLoop", "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	resolv := func(text string) func(scene) { return func(s scene) { s.put(etc, text) } }
	return []row{
		{check, "reachable", resolv("# nameserver 127.0.0.1\nsearch example.org\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n"), nil},
		{check, "only loopback", resolv("nameserver 127.0.0.1\noptions edns0\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.1 | CoreDNS | resolvConf"}},
		{check, "only systemd-resolved's stub", resolv("nameserver 127.0.0.53\nnameserver ::1\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.53, ::1 | CoreDNS | resolvConf"}},
		{check, "one of two", resolv("nameserver 127.0.0.1\nnameserver 192.0.2.53\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.1 | CoreDNS | resolvConf"}},
		{check, "none", resolv("search example.org\n"), []string{"[WARNING DNSLoop] | /etc/resolv.conf | CoreDNS | resolvConf"}},
		{check, "missing", func(s scene) { s.remove(etc) }, []string{"[SKIPPED DNSLoop] | /etc/resolv.conf"}},
		{check, "the kubelet's other file", func(s scene) {
			s.put(etc, "nameserver 127.0.0.53\n")
			s.put(other, "nameserver 192.0.2.53\n")
			s.node.Kubelet.ResolverConfig = new(other)
		}, nil},
		{check, "a file of the kubelet's flag", func(s scene) {
			s.put(etc, "nameserver 192.0.2.53\n")
			s.put("/etc/pods.conf", "nameserver 127.0.0.1\n")
			s.put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--resolv-conf=/etc/pods.conf\n")
		}, []string{"[WARNING DNSLoop] | /etc/pods.conf | --resolv-conf | /etc/default/kubelet | 127.0.0.1"}},
		{check, "no file", func(s scene) { s.node.Kubelet.ResolverConfig = new("") }, nil},
		{check, "no CoreDNS", func(s scene) {
			s.put(etc, "nameserver 127.0.0.1\n")
			s.node.Cluster.DNS.Disabled = true
		}, nil},
	}
}
