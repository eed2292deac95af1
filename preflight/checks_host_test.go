// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

func serviceRows() []row {
	unit := func(u host.UnitState) func(scene) {
		return func(s scene) { s.Has.Units["kubelet.service"] = u }
	}
	return []row{
		{"Service-kubelet", "no systemd", func(s scene) { s.Fail["Unit"] = errors.New("no bus") },
			[]string{"[WARNING Service-kubelet] | systemd | kubelet.service | no bus | `systemctl status kubelet.service`"}},
		{"Service-kubelet", "no init system", func(s scene) { s.Fail["Unit"] = host.ErrNoSystemd },
			[]string{"[WARNING Service-kubelet] | /run/systemd/system"}},
		{"Service-kubelet", "missing", unit(host.UnitState{LoadState: "not-found"}),
			[]string{"[ERROR Service-kubelet] | systemd | kubelet.service"}},
		{"Service-kubelet", "masked", unit(host.UnitState{LoadState: "masked", UnitFileState: "masked"}),
			[]string{"[ERROR Service-kubelet] | masked | `systemctl unmask kubelet.service`"}},
		{"Service-kubelet", "broken", unit(host.UnitState{LoadState: "bad-setting"}),
			[]string{"[ERROR Service-kubelet] | systemd | bad-setting | `systemctl status kubelet.service`"}},
		{"Service-kubelet", "disabled", unit(host.UnitState{LoadState: "loaded", UnitFileState: "disabled"}),
			[]string{"[WARNING Service-kubelet] | `systemctl enable kubelet.service`"}},
		{"Service-kubelet", "to be enabled", func(s scene) {
			unit(host.UnitState{LoadState: "loaded", UnitFileState: "disabled"})(s)
			s.node.EnableKubelet = true
		}, nil},
		{"Firewalld", "active", func(s scene) { s.firewalld() }, []string{"[WARNING Firewalld] | firewalld | 6443/tcp | 2379-2380/tcp | 10250/tcp | 8472/udp"}},
		{"CRI", "no answer", func(s scene) { s.Fail["RuntimeInfo"] = errors.New("no socket unix:///run/containerd/containerd.sock") },
			[]string{"[ERROR CRI] | no socket | unix:///run/containerd/containerd.sock | --cri-socket"}},
		{"CRI", "no runtime", func(s scene) { s.Fail["RuntimeInfo"] = errors.New("no socket") }, []string{"[ERROR CRI] | `slipway host prepare --bundle FILE`"}},
		{"CRI", "not ready", func(s scene) { s.Has.Runtime.Ready, s.Has.Runtime.Reason = false, "Starting: not yet" },
			[]string{"[ERROR CRI] | containerd v2.2.0 | Starting: not yet | `journalctl -u containerd.service`"}},
		{"CRI", "CRI-O not ready", func(s scene) {
			s.Has.Runtime.Ready, s.node.CRISocket = false, "unix:///var/run/crio/crio.sock"
		}, []string{"[ERROR CRI] | `journalctl -u crio.service`"}},
		{"ContainerRuntimeVersion", "no answer", func(s scene) { s.Fail["RuntimeInfo"] = errors.New("no socket unix:///run/containerd/containerd.sock") },
			[]string{"[ERROR ContainerRuntimeVersion] | unix:///run/containerd/containerd.sock | --cri-socket"}},
		{"ContainerRuntimeVersion", "old containerd", func(s scene) { s.Has.Runtime.Version = "1.7.24" },
			[]string{"[WARNING ContainerRuntimeVersion] | containerd 1.7.24 | 1.38 | containerd 2.0 | CRI-O 1.28"}},
		{"ContainerRuntimeVersion", "old containerd of another mind", func(s scene) { s.Has.Runtime.Version, s.Has.Runtime.CgroupDriver = "1.7.24", "cgroupfs" },
			[]string{"[ERROR ContainerRuntimeVersion] | containerd 1.7.24 | cgroupfs | systemd | containerd 2.0 | CRI-O 1.28"}},
		{"ContainerRuntimeVersion", "old CRI-O", func(s scene) { s.Has.Runtime = &host.RuntimeInfo{Name: "cri-o", Version: "1.27.0", Ready: true} },
			[]string{"[WARNING ContainerRuntimeVersion] | cri-o 1.27.0 | 1.38 | containerd 2.0 | CRI-O 1.28"}},
		{"ContainerRuntimeVersion", "another driver that the kubelet will follow", func(s scene) { s.Has.Runtime.CgroupDriver = "cgroupfs" }, nil},
	}
}

func systemRows() []row {
	off := false
	const remedy = " | cgroup v2 | systemd.unified_cgroup_hierarchy=1"
	kernel := func(release string) func(scene) { return func(s scene) { s.Has.Kernel = release } }
	unsupported := func(release string) []string {
		return []string{fmt.Sprintf("[WARNING SystemVerification] | kernel %s | kernel 5.4 | 5.10 | 5.15 | 6.0", release)}
	}
	return []row{
		{"SystemVerification", "kernel 5.15", kernel("5.15.0-107-generic"), nil},
		{"SystemVerification", "kernel 4.18", kernel("4.18.0-553.el8.x86_64"), unsupported("4.18.0-553.el8.x86_64")},
		{"SystemVerification", "kernel 5.3", kernel("5.3.18-150300.59-default"), unsupported("5.3.18-150300.59-default")},
		{"SystemVerification", "kernel 5.14", kernel("5.14.0-570.el9.x86_64"), []string{"[NOTE SystemVerification] | 5.14.0-570.el9.x86_64 | kernel.org | Red Hat | SUSE"}},
		{"SystemVerification", "kernel of a strange name", kernel("custom"),
			[]string{"[WARNING SystemVerification] | \"custom\" | kernel 5.4 | 5.10 | 5.15 | 6.0"}},
		{"SystemVerification", "kernel not to be told", func(s scene) { s.Fail["KernelRelease"] = errors.New("no uname") },
			[]string{"[WARNING SystemVerification] | no uname | kernel 5.4 | 5.10 | 5.15 | 6.0"}},
		{"SystemVerification", "kernel options missing", func(s scene) {
			s.put("/proc/config.gz", gzipped(strings.NewReplacer("CONFIG_NET_NS=y", "# CONFIG_NET_NS is not set", "CONFIG_NETFILTER_XT_TARGET_REDIRECT=y", "").Replace(kernelOptions())))
		}, []string{"[ERROR SystemVerification] | CONFIG_NET_NS | CONFIG_NETFILTER_XT_TARGET_REDIRECT | CONFIG_IP_NF_TARGET_REDIRECT"}},
		{"SystemVerification", "kernel options by another name, as modules, in /boot", func(s scene) {
			s.remove("/proc/config.gz")
			s.put("/boot/config-6.12.1-amd64", strings.NewReplacer("NETFILTER_XT_TARGET_REDIRECT=y", "IP_NF_TARGET_REDIRECT=m").Replace(kernelOptions()))
		}, nil},
		{"SystemVerification", "kernel options damaged, then none", func(s scene) { s.put("/proc/config.gz", "") },
			[]string{"[NOTE SystemVerification] | kernel's configuration"}},
		{"SystemVerification", "controllers missing", func(s scene) { s.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n") },
			[]string{
				"[WARNING SystemVerification] | hugetlb",
				"[ERROR SystemVerification] | memory, pids | cgroup_enable=memory",
			}},
		{"SystemVerification", "cgroup v1", cgroupV1,
			[]string{"[ERROR SystemVerification] | cgroup v1 | 1.35" + remedy + " | failCgroupV1 | KubeletConfiguration"}},
		{"SystemVerification", "cgroup v1, allowed", func(s scene) { cgroupV1(s); s.node.Kubelet.FailCgroupV1 = &off },
			[]string{"[WARNING SystemVerification] | cgroup v1" + remedy}},
		{"SystemVerification", "cgroup v1, old kubelet", func(s scene) { cgroupV1(s); s.Has.Programs["kubelet"] = "Kubernetes v1.34.4" },
			[]string{"[WARNING SystemVerification] | cgroup v1" + remedy}},
		{"SystemVerification", "cgroup v1 without memory", func(s scene) {
			cgroupV1(s)
			s.node.Kubelet.FailCgroupV1 = &off
			s.put("/proc/cgroups", strings.Replace(v1Table, "memory\t4\t18\t1", "memory\t0\t1\t0", 1))
		}, []string{
			"[ERROR SystemVerification] | memory | cgroup_enable=memory",
			"[WARNING SystemVerification] | cgroup v1" + remedy,
		}},
		{"SystemVerification", "no cgroups", func(s scene) { s.remove("/sys/fs/cgroup/cgroup.controllers") },
			[]string{"[ERROR SystemVerification] | proc/cgroups | cgroup v2 | /sys/fs/cgroup"}},
	}
}

const v1Table = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n" +
	"cpuset\t3\t1\t1\ncpu\t1\t1\t1\ncpuacct\t2\t1\t1\nblkio\t7\t1\t1\nmemory\t4\t18\t1\n" +
	"devices\t5\t1\t1\nfreezer\t6\t1\t1\nhugetlb\t0\t1\t1\npids\t8\t1\t1\n"

func cgroupV1(s scene) {
	s.remove("/sys/fs/cgroup/cgroup.controllers")
	s.put("/proc/cgroups", v1Table)
}

func networkRows() []row {
	// unless proxies everything except URLs that begin with one of these.
	unless := func(free ...string) func(string) (string, error) {
		return func(url string) (string, error) {
			for _, f := range free {
				if strings.HasPrefix(url, "https://"+f) {
					return "", nil
				}
			}
			return "http://proxy:3128", nil
		}
	}
	broken := func(string) (string, error) { return "", errors.New("the environment's proxy is not a valid URL") }
	route := func(to, dev string) host.Route {
		return host.Route{Destination: netip.MustParsePrefix(to), Interface: dev}
	}
	return []row{
		{"HTTPProxy", "in the way", func(s scene) { s.On.ProxyFor = unless() },
			[]string{"[WARNING HTTPProxy] | 192.0.2.10:6443 | http://proxy:3128 | 192.0.2.10 to NO_PROXY"}},
		{"HTTPProxy", "in the way of the endpoint", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint = "api.example.com"
			s.On.ProxyFor = unless("192.0.2.10:6443")
		}, []string{"[WARNING HTTPProxy] | api.example.com:6443 | http://proxy:3128 | api.example.com to NO_PROXY"}},
		{"HTTPProxy", "not a URL", func(s scene) { s.On.ProxyFor = broken },
			[]string{"[WARNING HTTPProxy] | URL | HTTPS_PROXY | HTTP_PROXY"}},
		{"HTTPProxyCIDR", "in the way", func(s scene) { s.On.ProxyFor = unless() },
			[]string{
				"[WARNING HTTPProxyCIDR] | 10.96.0.0/12 | http://proxy:3128 | 10.96.0.0/12 to NO_PROXY",
				"[WARNING HTTPProxyCIDR] | 10.244.0.0/16 | http://proxy:3128 | 10.244.0.0/16 to NO_PROXY",
			}},
		{"HTTPProxyCIDR", "half excepted", func(s scene) { s.On.ProxyFor = unless("10.96.", "10.111.255.255:", "10.244.0.") },
			[]string{"[WARNING HTTPProxyCIDR] | 10.244.0.0/16 | http://proxy:3128 | 10.244.0.0/16 to NO_PROXY"}},
		{"HTTPProxyCIDR", "IPv6", func(s scene) {
			s.node.Cluster.Networking.PodSubnet = ""
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.On.ProxyFor = unless("[fd00:2::1]:443")
		}, []string{"[WARNING HTTPProxyCIDR] | fd00:2::/112 | http://proxy:3128 | fd00:2::/112 to NO_PROXY"}},
		{"HTTPProxyCIDR", "not a URL", func(s scene) { s.On.ProxyFor = broken },
			[]string{"[WARNING HTTPProxyCIDR] | URL | HTTPS_PROXY | HTTP_PROXY"}},

		{"PodSubnetRoutes", "a part is elsewhere", func(s scene) {
			s.Has.Routes = append(s.Has.Routes, route("10.244.9.1/32", "eth1"), route("10.244.7.0/24", "tun0"), route("10.244.9.1/32", "eth1"))
		}, []string{"[ERROR PodSubnetRoutes] | 10.244.0.0/16 | 10.244.7.0/24 on tun0 | 10.244.9.1/32 on eth1 | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "the same", func(s scene) { s.Has.Routes = append(s.Has.Routes, route("10.244.0.0/16", "docker0")) },
			[]string{"[ERROR PodSubnetRoutes] | 10.244.0.0/16 on docker0 | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "Podman's", func(s scene) { s.Has.Routes = append(s.Has.Routes, route("10.244.0.0/16", "cni-podman0")) },
			[]string{"[ERROR PodSubnetRoutes] | 10.244.0.0/16 on cni-podman0 | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "LXC's", func(s scene) { s.Has.Routes = append(s.Has.Routes, route("10.244.0.0/16", "lxcbr0")) },
			[]string{"[ERROR PodSubnetRoutes] | 10.244.0.0/16 on lxcbr0 | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "within a wider one", func(s scene) { s.Has.Routes = append(s.Has.Routes, route("10.0.0.0/8", "tun0")) },
			[]string{"[WARNING PodSubnetRoutes] | 10.244.0.0/16 | 10.0.0.0/8 on tun0 | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "the node's address", func(s scene) { s.node.Cluster.Networking.PodSubnet = "192.0.0.0/16" },
			[]string{
				"[ERROR PodSubnetRoutes] | 192.0.0.0/16 | 192.0.2.10 | --pod-network-cidr | networking.podSubnet",
				"[ERROR PodSubnetRoutes] | 192.0.0.0/16 | 192.0.2.0/24 on eth0 | --pod-network-cidr | networking.podSubnet",
			}},
		{"PodSubnetRoutes", "a CNI plugin's", func(s scene) {
			s.Has.Routes = append(s.Has.Routes, route("10.244.0.0/24", "cni0"), route("10.244.1.0/24", "flannel.1"), route("10.244.2.3/32", "cali0123"))
		}, nil},
		{"PodSubnetRoutes", "to other nodes of the cluster that runs already", func(s scene) {
			s.Has.Routes = append(s.Has.Routes, route("10.244.1.0/24", "eth0"))
			s.earlier("kube-apiserver")
		}, []string{"[NOTE PodSubnetRoutes] | 10.244.0.0/16 | 10.244.1.0/24 on eth0"}},
		{"PodSubnetRoutes", "through gateways", func(s scene) {
			for _, to := range []string{"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.4.0/24"} {
				r := route(to, "eth0")
				r.Gateway = true
				s.Has.Routes = append(s.Has.Routes, r)
			}
		}, []string{"[WARNING PodSubnetRoutes] | 10.244.0.0/16 | 10.244.1.0/24 on eth0 | 10.244.2.0/24 on eth0 | 10.244.3.0/24 on eth0 | 1 more | --pod-network-cidr | networking.podSubnet"}},
		{"PodSubnetRoutes", "none", func(s scene) { s.node.Cluster.Networking.PodSubnet = "" }, nil},
		{"PodSubnetRoutes", "not to be told", func(s scene) { s.Fail["Routes"] = errors.New("no netlink") },
			[]string{"[WARNING PodSubnetRoutes] | no netlink | `ip route`"}},
		{"ServiceSubnetRoutes", "a part is elsewhere", func(s scene) { s.Has.Routes = append(s.Has.Routes, route("10.100.0.0/24", "eth1")) },
			[]string{"[ERROR ServiceSubnetRoutes] | 10.96.0.0/12 | 10.100.0.0/24 on eth1 | --service-cidr | networking.serviceSubnet"}},
		{"ServiceSubnetRoutes", "of the other family", func(s scene) {
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.Has.Routes = append(s.Has.Routes, route("10.96.0.0/12", "eth1"), route("fe80::/64", "eth0"))
		}, nil},
	}
}

func TestSysctlSetting(t *testing.T) {
	for line, want := range map[string][2]string{
		"net.ipv4.ip_forward = 1\n":          {"net/ipv4/ip_forward", "1"},
		"-net/ipv4/ip_forward=0":             {"net/ipv4/ip_forward", "0"},
		"net.ipv6.conf.eth0/100.accept_ra=2": {"net/ipv6/conf/eth0.100/accept_ra", "2"},
		"net/ipv6/conf/eth0.100/accept_ra=2": {"net/ipv6/conf/eth0.100/accept_ra", "2"},
		"# net.ipv4.ip_forward=0":            {"", ""},
		"; net.ipv4.ip_forward=0":            {"", ""},
		"net.ipv4.ip_forward":                {"", ""},
		"":                                   {"", ""},
	} {
		if name, value := sysctlSetting(line); name != want[0] || value != want[1] {
			t.Errorf("%q: %q, %q, want %q", line, name, value, want)
		}
	}
}

func dnsLoopRows() []row {
	const check, etc, other = "DNSLoop", "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	resolv := func(text string) func(scene) { return func(s scene) { s.put(etc, text) } }
	return []row{
		{check, "reachable", resolv("# nameserver 127.0.0.1\nsearch example.org\nnameserver 192.0.2.53\n"), nil},
		{check, "only loopback", resolv("nameserver 127.0.0.1\noptions edns0\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.1 | CoreDNS | resolvConf"}},
		{check, "only systemd-resolved's stub", resolv("nameserver 127.0.0.53\nnameserver ::1\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.53, ::1 | CoreDNS | resolvConf"}},
		{check, "one of two", resolv("nameserver 127.0.0.1\nnameserver 192.0.2.53\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | 127.0.0.1 | CoreDNS | resolvConf"}},
		{check, "on a link", resolv("nameserver fe80::1%eth0\nnameserver 192.0.2.53\n"),
			[]string{"[WARNING DNSLoop] | /etc/resolv.conf | fe80::1%eth0 | CoreDNS | resolvConf"}},
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
