// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// The components that a control plane node runs, by the names of their
// programs and of their static Pods' files.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	etcd              = "etcd"
	kubelet           = "kubelet"
)

// Init lists what a host is asked before it becomes the first control plane
// node. manifests holds the static Pods that the configuration asks for, by
// path; what an earlier run with the same configuration left is recognised by
// them. Images are a check of their own (ImagePull), since it changes the
// runtime's store.
func Init(n *config.Node, manifests map[string][]byte) []Check {
	checks := slices.Concat(
		[]Check{
			{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		},
		controlPlane(n),
		staticPods(n, manifests, apiServer, controllerManager, scheduler, etcd),
		proxies(n),
		node(n),
		networks(n),
	)
	if external := n.Cluster.Etcd.External; external != nil {
		return append(checks, externalEtcd(external)...)
	}
	return append(checks, localEtcd(n)...)
}

// controlPlane lists what every control plane is asked, first or not.
func controlPlane(n *config.Node) []Check {
	return append([]Check{
		{Name: "NumCPU", Run: numCPU, Asks: "at least 2 CPUs"},
		{Name: "Mem", Run: memory, Asks: "at least 1700 MiB of memory"},
		{Name: "KubernetesVersion", Run: kubernetesVersion(n.Cluster.KubernetesVersion), Asks: "not newer than this program knows"},
		{Name: "Firewalld", Run: firewalld(n), Asks: "firewalld does not run, or its ports are opened (warning)"},
	}, ports(n, portUse{int(n.BindPort), apiServer}, portUse{10259, scheduler}, portUse{10257, controllerManager})...)
}

// node lists what every node of a cluster is asked, whatever its role.
func node(n *config.Node) []Check {
	checks := []Check{
		{Name: "CRI", Run: runtimeReady(n.CRISocket), Asks: "the container runtime answers and is ready"},
		{Name: "ContainerRuntimeVersion", Run: runtimeVersion(n), Asks: "the runtime can tell the kubelet its cgroup driver, or both have the same"},
		{Name: "CgroupDriver", Run: cgroupDriver(n), Asks: "the driver that the runtime names fits this host, and what the kubelet will make of it"},
		{Name: "FileExisting-losetup", Run: program("losetup", "mount (Debian) or util-linux"), Asks: "the program is there"},
		{Name: "FileExisting-mount", Run: program("mount", "mount (Debian) or util-linux"), Asks: "the program is there"},
		{Name: "FileExisting-cp", Run: program("cp", "coreutils"), Asks: "the program is there"},
		{Name: "SystemVerification", Run: system(n), Asks: "kernel release and options, cgroup controllers, cgroup v1 against failCgroupV1"},
		{Name: "KernelModules", Run: kernelModules(n), Asks: "overlay, br_netfilter, nf_conntrack and what kube-proxy's mode needs, loaded or built in (warning)"},
		{Name: "Hostname", Run: nodeName(n.Name), Asks: "the node's name is valid (error), and resolves to this host (warning)"},
		{Name: "ControlPlaneEndpoint", Run: controlPlaneEndpoint(n), Asks: "the name of the control plane's endpoint resolves"},
		{Name: "KubeletVersion", Run: kubeletVersion(n.Cluster.KubernetesVersion), Asks: "the kubelet is not newer than the control plane, and at most three minor versions older"},
		{Name: "Service-kubelet", Run: kubeletService(n), Asks: "systemd has the kubelet's unit, not masked; enabled (warning)"},
		{Name: "Swap", Run: swap(n), Asks: "no swap, unless the kubelet's settings allow it (then a warning)"},
		{Name: "WritableFolders", Run: writable(n), Asks: "a file can be made, synced and renamed in each directory that will be written to"},
		{Name: "DiskSpace-kubernetes", Run: space(n, n.Paths.Kubernetes, kubernetesNeed()), Asks: "10 MiB (error), 50 MiB (warning) and 5000 inodes free for /etc/kubernetes"},
		{Name: "DiskSpace-kubelet", Run: space(n, n.Paths.Kubelet, kubeletNeed()), Asks: "100 MiB (error), 1 GiB (warning) and 5000 inodes free for /var/lib/kubelet, and more than the kubelet evicts at (warning)"},
		{Name: "DiskSpace-runtime", Run: runtimeSpace(n), Asks: "500 MiB (error), 2 GiB (warning) and 5000 inodes free where the runtime keeps images, and more than the kubelet evicts at (warning)"},
		{Name: "MTU", Run: mtu(n), Asks: "the MTU of the default route's interface fits IPv6 and those of the other interfaces (warning)"},
	}
	return slices.Concat(checks, forwarding(n), ports(n, portUse{kubeletPort(n), kubelet}))
}

func localEtcd(n *config.Node) []Check {
	dir := n.Cluster.Etcd.Local.DataDir
	return append(
		ports(n, portUse{2379, etcd}, portUse{2380, etcd}),
		Check{Name: "DirAvailable-" + dashed(dir), Run: etcdData(n, dir), Asks: "etcd's directory is empty, or holds the data of this node's etcd"},
		Check{Name: "EtcdDisk", Run: etcdDisk(dir), Asks: "fdatasync after a write of 2300 bytes takes at most 10 ms at the 99th percentile (warning); a hundred are timed, for half a second at most"},
		Check{Name: "DiskSpace-etcd", Run: space(n, dir, etcdNeed()), Asks: "200 MiB (error), 2 GiB (warning) and 5000 inodes free for etcd's directory"})
}

func staticPods(n *config.Node, manifests map[string][]byte, components ...string) []Check {
	var checks []Check
	for _, c := range components {
		path := manifestPath(n, c)
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(path), Run: staticPod(path, c, manifests[path]), Asks: "the manifest is absent, or that of this configuration, edited or not"})
	}
	return checks
}

func forwarding(n *config.Node) []Check {
	var v4, v6 bool
	for _, p := range n.ServiceSubnets() {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	var checks []Check
	add := func(path, setting string) {
		checks = append(checks, Check{Name: "FileContent-" + dashed(path), Run: switchedOn(path, setting), Asks: "is 1"})
	}
	if v4 {
		add("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward")
	}
	if v6 {
		add("/proc/sys/net/ipv6/conf/default/forwarding", "net.ipv6.conf.default.forwarding")
	}
	return checks
}

func ports(n *config.Node, uses ...portUse) []Check {
	var checks []Check
	for _, u := range uses {
		checks = append(checks, Check{Name: fmt.Sprintf("Port-%d", u.port), Run: portFree(n, u), Asks: "the port is free, or held by this node's " + u.program})
	}
	return checks
}

func kubeletPort(n *config.Node) int {
	if n.Kubelet.Port != 0 {
		return int(n.Kubelet.Port)
	}
	return 10250
}

func manifestPath(n *config.Node, component string) string {
	return filepath.Join(n.Paths.Manifests, component+".yaml")
}

// dashed writes a path as the names of checks have it.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }
