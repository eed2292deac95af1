// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

func serviceRows() []row {
	unit := func(u host.UnitState) func(scene) {
		return func(s scene) { s.units["kubelet.service"] = u }
	}
	return []row{
		{"Service-kubelet", "no systemd", func(s scene) { s.noSystemd = true },
			[]string{"[WARNING Service-kubelet]: cannot ask systemd about kubelet.service: no bus\n  check it with `systemctl status kubelet.service`"}},
		{"Service-kubelet", "no init system", func(s scene) { s.noInit = true },
			[]string{"[WARNING Service-kubelet]: no init system was found (/run/systemd/system is missing)\n  start the kubelet in another way"}},
		{"Service-kubelet", "missing", unit(host.UnitState{LoadState: "not-found"}),
			[]string{"[ERROR Service-kubelet]: systemd has no unit kubelet.service\n  install the kubelet's package, or its unit and drop-in"}},
		{"Service-kubelet", "masked", unit(host.UnitState{LoadState: "masked", UnitFileState: "masked"}),
			[]string{"[ERROR Service-kubelet]: kubelet.service is masked, so it cannot be started\n  run `systemctl unmask kubelet.service`"}},
		{"Service-kubelet", "broken", unit(host.UnitState{LoadState: "bad-setting"}),
			[]string{"[ERROR Service-kubelet]: systemd cannot load kubelet.service (bad-setting)\n  see `systemctl status kubelet.service`"}},
		{"Service-kubelet", "disabled", unit(host.UnitState{LoadState: "loaded", UnitFileState: "disabled"}),
			[]string{"[WARNING Service-kubelet]: kubelet.service is not enabled, so the kubelet will not start after a reboot\n  run `systemctl enable kubelet.service`"}},
		{"Service-kubelet", "to be enabled", func(s scene) {
			unit(host.UnitState{LoadState: "loaded", UnitFileState: "disabled"})(s)
			s.node.EnableKubelet = true
		}, nil},
		{"Firewalld", "no systemd", func(s scene) { s.noSystemd = true },
			[]string{"[WARNING Firewalld]: cannot check whether a firewall blocks TCP ports 6443 and 10250: no bus\n  make sure that other nodes can reach these ports of this host"}},
		{"Firewalld", "active", func(s scene) {
			s.units["firewalld.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
		},
			[]string{"[WARNING Firewalld]: firewalld is active, and other nodes must be able to reach TCP ports 6443 and 10250 of this host\n  open them with `firewall-cmd --permanent --add-port=6443/tcp --add-port=10250/tcp && firewall-cmd --reload`"}},
		{"CRI", "no answer", func(s scene) { s.noRuntime = true },
			[]string{"[ERROR CRI]: the container runtime does not answer: no socket unix:///run/containerd/containerd.sock\n  start it, or name its socket with --cri-socket"}},
		{"CRI", "not ready", func(s scene) { s.runtime.Ready, s.runtime.Reason = false, "Starting: not yet" },
			[]string{"[ERROR CRI]: the container runtime containerd v2.2.0 is not ready: Starting: not yet\n  see its log"}},
		{"ContainerRuntimeVersion", "no answer", func(s scene) { s.noRuntime = true },
			[]string{"[ERROR ContainerRuntimeVersion]: cannot read the container runtime's version: it does not answer at unix:///run/containerd/containerd.sock\n  start it, or name its socket with --cri-socket"}},
		{"ContainerRuntimeVersion", "old containerd", func(s scene) { s.runtime.Version = "1.7.24" },
			[]string{"[WARNING ContainerRuntimeVersion]: containerd 1.7.24 cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that\n  update the container runtime to containerd 2.0, CRI-O 1.28 or later"}},
		{"ContainerRuntimeVersion", "old containerd of another mind", func(s scene) { s.runtime.Version, s.runtime.CgroupDriver = "1.7.24", "cgroupfs" },
			[]string{"[ERROR ContainerRuntimeVersion]: containerd 1.7.24 uses the cgroup driver cgroupfs, but the kubelet would use systemd\n  set the same driver in both, or update the container runtime to containerd 2.0, CRI-O 1.28 or later"}},
		{"ContainerRuntimeVersion", "old CRI-O", func(s scene) { s.runtime = host.RuntimeInfo{Name: "cri-o", Version: "1.27.0", Ready: true} },
			[]string{"[WARNING ContainerRuntimeVersion]: cri-o 1.27.0 cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that\n  update the container runtime to containerd 2.0, CRI-O 1.28 or later"}},
		{"ContainerRuntimeVersion", "another driver that the kubelet will follow", func(s scene) { s.runtime.CgroupDriver = "cgroupfs" }, nil},
	}
}

func systemRows() []row {
	off := false
	const remedy = "\n  switch to cgroup v2 (kernel argument systemd.unified_cgroup_hierarchy=1)"
	kernel := func(release string) func(scene) { return func(s scene) { s.kernel = release } }
	unsupported := func(release string) []string {
		return []string{fmt.Sprintf("[WARNING SystemVerification]: Kubernetes does not support the kernel %s\n  use kernel 5.4, 5.10, 5.15, or 6.0 or later", release)}
	}
	return []row{
		{"SystemVerification", "kernel 5.15", kernel("5.15.0-107-generic"), nil},
		{"SystemVerification", "kernel 4.18", kernel("4.18.0-553.el8.x86_64"), unsupported("4.18.0-553.el8.x86_64")},
		{"SystemVerification", "kernel 5.14", kernel("5.14.0"), unsupported("5.14.0")},
		{"SystemVerification", "kernel of a strange name", kernel("custom"),
			[]string{"[WARNING SystemVerification]: the kernel's release \"custom\" does not begin with a version\n  use kernel 5.4, 5.10, 5.15, or 6.0 or later"}},
		{"SystemVerification", "kernel not to be told", func(s scene) { s.unknown["kernel"] = errors.New("no uname") },
			[]string{"[WARNING SystemVerification]: cannot read the kernel's release: no uname\n  use kernel 5.4, 5.10, 5.15, or 6.0 or later"}},
		{"SystemVerification", "kernel options missing", func(s scene) {
			s.put("/proc/config.gz", gzipped(strings.NewReplacer("CONFIG_NET_NS=y", "# CONFIG_NET_NS is not set", "CONFIG_NETFILTER_XT_TARGET_REDIRECT=y", "").Replace(kernelOptions())))
		}, []string{"[ERROR SystemVerification]: the kernel lacks CONFIG_NET_NS, CONFIG_NETFILTER_XT_TARGET_REDIRECT or CONFIG_IP_NF_TARGET_REDIRECT\n  use a kernel that has these options"}},
		{"SystemVerification", "kernel options by another name, as modules, in /boot", func(s scene) {
			delete(s.files, "proc/config.gz")
			s.put("/boot/config-6.12.1-amd64", strings.NewReplacer("NETFILTER_XT_TARGET_REDIRECT=y", "IP_NF_TARGET_REDIRECT=m").Replace(kernelOptions()))
		}, nil},
		{"SystemVerification", "kernel options damaged, then none", func(s scene) { s.put("/proc/config.gz", "") },
			[]string{"did not find the kernel's configuration, so its options are not checked"}},
		{"SystemVerification", "controllers missing", func(s scene) { s.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n") },
			[]string{
				"[WARNING SystemVerification]: missing cgroup controllers: hugetlb; Pods' limits on these resources will not be enforced\n  enable them in the kernel if you need such limits",
				"[ERROR SystemVerification]: missing cgroup controllers: memory, pids; the kubelet needs them\n  enable them in the kernel, for example with the argument cgroup_enable=memory",
			}},
		{"SystemVerification", "cgroup v1", cgroupV1,
			[]string{"[ERROR SystemVerification]: this host uses cgroup v1, on which the kubelet does not start since Kubernetes 1.35" + remedy + "; for the time being, you can set failCgroupV1: false in a KubeletConfiguration instead"}},
		{"SystemVerification", "cgroup v1, allowed", func(s scene) { cgroupV1(s); s.node.Kubelet.FailCgroupV1 = &off },
			[]string{"[WARNING SystemVerification]: this host uses cgroup v1, which Kubernetes will stop supporting" + remedy}},
		{"SystemVerification", "cgroup v1, old kubelet", func(s scene) { cgroupV1(s); s.programs["kubelet"] = "Kubernetes v1.34.4" },
			[]string{"[WARNING SystemVerification]: this host uses cgroup v1, which Kubernetes will stop supporting" + remedy}},
		{"SystemVerification", "cgroup v1 without memory", func(s scene) {
			cgroupV1(s)
			s.node.Kubelet.FailCgroupV1 = &off
			s.put("/proc/cgroups", strings.Replace(v1Table, "memory\t4\t18\t1", "memory\t0\t1\t0", 1))
		}, []string{
			"[ERROR SystemVerification]: missing cgroup controllers: memory; the kubelet needs them\n  enable them in the kernel, for example with the argument cgroup_enable=memory",
			"[WARNING SystemVerification]: this host uses cgroup v1, which Kubernetes will stop supporting" + remedy,
		}},
		{"SystemVerification", "no cgroups", func(s scene) { delete(s.files, "sys/fs/cgroup/cgroup.controllers") },
			[]string{"[ERROR SystemVerification]: this host has no cgroups: open proc/cgroups: file does not exist\n  mount cgroup v2 on /sys/fs/cgroup"}},
	}
}

const v1Table = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n" +
	"cpuset\t3\t1\t1\ncpu\t1\t1\t1\ncpuacct\t2\t1\t1\nblkio\t7\t1\t1\nmemory\t4\t18\t1\n" +
	"devices\t5\t1\t1\nfreezer\t6\t1\t1\nhugetlb\t0\t1\t1\npids\t8\t1\t1\n"

func cgroupV1(s scene) {
	delete(s.files, "sys/fs/cgroup/cgroup.controllers")
	s.put("/proc/cgroups", v1Table)
}

func networkRows() []row {
	// unless proxies everything except what begins with one of these.
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
		{"HTTPProxy", "in the way", func(s scene) { s.proxy = unless() },
			[]string{"[WARNING HTTPProxy]: requests to the API server at 192.0.2.10:6443 would go through the proxy http://proxy:3128\n  to bypass the proxy, add 192.0.2.10 to NO_PROXY"}},
		{"HTTPProxy", "in the way of the endpoint", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint = "api.example.com"
			s.proxy = unless("192.0.2.10:6443")
		}, []string{"[WARNING HTTPProxy]: requests to the API server at api.example.com:6443 would go through the proxy http://proxy:3128\n  to bypass the proxy, add api.example.com to NO_PROXY"}},
		{"HTTPProxy", "not a URL", func(s scene) { s.proxy = broken },
			[]string{"[WARNING HTTPProxy]: the environment's proxy is not a valid URL\n  fix or remove HTTPS_PROXY and HTTP_PROXY"}},
		{"HTTPProxyCIDR", "in the way", func(s scene) { s.proxy = unless() },
			[]string{
				"[WARNING HTTPProxyCIDR]: requests to 10.96.0.0/12, a network of the cluster, would go through the proxy http://proxy:3128, which cannot reach it\n  add 10.96.0.0/12 to NO_PROXY",
				"[WARNING HTTPProxyCIDR]: requests to 10.244.0.0/16, a network of the cluster, would go through the proxy http://proxy:3128, which cannot reach it\n  add 10.244.0.0/16 to NO_PROXY",
			}},
		{"HTTPProxyCIDR", "half excepted", func(s scene) { s.proxy = unless("10.96.", "10.111.255.255:", "10.244.0.") },
			[]string{"[WARNING HTTPProxyCIDR]: requests to 10.244.0.0/16, a network of the cluster, would go through the proxy http://proxy:3128, which cannot reach it\n  add 10.244.0.0/16 to NO_PROXY"}},
		{"HTTPProxyCIDR", "IPv6", func(s scene) {
			s.node.Cluster.Networking.PodSubnet = ""
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.proxy = unless("[fd00:2::1]:443")
		}, []string{"[WARNING HTTPProxyCIDR]: requests to fd00:2::/112, a network of the cluster, would go through the proxy http://proxy:3128, which cannot reach it\n  add fd00:2::/112 to NO_PROXY"}},
		{"HTTPProxyCIDR", "not a URL", func(s scene) { s.proxy = broken },
			[]string{"[WARNING HTTPProxyCIDR]: the environment's proxy is not a valid URL\n  fix or remove HTTPS_PROXY and HTTP_PROXY"}},

		{"PodSubnetRoutes", "a part is elsewhere", func(s scene) {
			s.routes = append(s.routes, route("10.244.9.1/32", "eth1"), route("10.244.7.0/24", "tun0"), route("10.244.9.1/32", "eth1"))
		}, []string{"[ERROR PodSubnetRoutes]: the Pod network 10.244.0.0/16 overlaps networks that this host is attached to (10.244.7.0/24 on tun0, 10.244.9.1/32 on eth1)\n  choose another network with --pod-network-cidr or networking.podSubnet"}},
		{"PodSubnetRoutes", "the same", func(s scene) { s.routes = append(s.routes, route("10.244.0.0/16", "docker0")) },
			[]string{"[ERROR PodSubnetRoutes]: the Pod network 10.244.0.0/16 overlaps networks that this host is attached to (10.244.0.0/16 on docker0)\n  choose another network with --pod-network-cidr or networking.podSubnet"}},
		{"PodSubnetRoutes", "within a wider one", func(s scene) { s.routes = append(s.routes, route("10.0.0.0/8", "tun0")) },
			[]string{"[WARNING PodSubnetRoutes]: the Pod network 10.244.0.0/16 lies within networks that this host has routes to (10.0.0.0/8 on tun0), so hosts there with such an address cannot be reached\n  if there are such hosts, choose another network with --pod-network-cidr or networking.podSubnet"}},
		{"PodSubnetRoutes", "the node's address", func(s scene) { s.node.Cluster.Networking.PodSubnet = "192.0.0.0/16" },
			[]string{
				"[ERROR PodSubnetRoutes]: the Pod network 192.0.0.0/16 contains this node's own address 192.0.2.10\n  choose another network with --pod-network-cidr or networking.podSubnet",
				"[ERROR PodSubnetRoutes]: the Pod network 192.0.0.0/16 overlaps networks that this host is attached to (192.0.2.0/24 on eth0)\n  choose another network with --pod-network-cidr or networking.podSubnet",
			}},
		{"PodSubnetRoutes", "a CNI plugin's", func(s scene) {
			s.routes = append(s.routes, route("10.244.0.0/24", "cni0"), route("10.244.1.0/24", "flannel.1"), route("10.244.2.3/32", "cali0123"))
		}, nil},
		{"PodSubnetRoutes", "to other nodes of the cluster that runs already", func(s scene) {
			s.routes = append(s.routes, route("10.244.1.0/24", "eth0"))
			s.earlier("kube-apiserver")
		}, []string{"routes into the Pod network 10.244.0.0/16: 10.244.1.0/24 on eth0"}},
		{"PodSubnetRoutes", "through gateways", func(s scene) {
			for _, to := range []string{"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.4.0/24"} {
				r := route(to, "eth0")
				r.Gateway = true
				s.routes = append(s.routes, r)
			}
		}, []string{"[WARNING PodSubnetRoutes]: this host has routes into the Pod network 10.244.0.0/16 (10.244.1.0/24 on eth0, 10.244.2.0/24 on eth0, 10.244.3.0/24 on eth0, and 1 more)\n  unless they lead to other nodes of the cluster, choose another network with --pod-network-cidr or networking.podSubnet"}},
		{"PodSubnetRoutes", "none", func(s scene) { s.node.Cluster.Networking.PodSubnet = "" }, nil},
		{"PodSubnetRoutes", "not to be told", func(s scene) { s.unknown["routes"] = errors.New("no netlink") },
			[]string{"[WARNING PodSubnetRoutes]: cannot read this host's routes, so the Pod network is not checked: no netlink\n  compare it with `ip route`"}},
		{"ServiceSubnetRoutes", "a part is elsewhere", func(s scene) { s.routes = append(s.routes, route("10.100.0.0/24", "eth1")) },
			[]string{"[ERROR ServiceSubnetRoutes]: the Service network 10.96.0.0/12 overlaps networks that this host is attached to (10.100.0.0/24 on eth1)\n  choose another network with --service-cidr or networking.serviceSubnet"}},
		{"ServiceSubnetRoutes", "of the other family", func(s scene) {
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.routes = append(s.routes, route("10.96.0.0/12", "eth1"), route("fe80::/64", "eth0"))
		}, nil},
	}
}
