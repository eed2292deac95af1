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
			{Name: "IsPrivilegedUser", Run: privilegedUser},
			{Name: "NumCPU", Run: numCPU},
			{Name: "Mem", Run: memory},
			{Name: "KubernetesVersion", Run: kubernetesVersion(n.Cluster.KubernetesVersion)},
			{Name: "Firewalld", Run: firewalld(n)},
		},
		ports(n, portUse{int(n.BindPort), apiServer}, portUse{10259, scheduler}, portUse{10257, controllerManager}),
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

// node lists what every node of a cluster is asked, whatever its role.
func node(n *config.Node) []Check {
	checks := []Check{
		{Name: "CRI", Run: runtimeReady(n.CRISocket)},
		{Name: "ContainerRuntimeVersion", Run: runtimeVersion(n)},
		{Name: "FileExisting-losetup", Run: program("losetup", "mount (Debian) or util-linux")},
		{Name: "FileExisting-mount", Run: program("mount", "mount (Debian) or util-linux")},
		{Name: "FileExisting-cp", Run: program("cp", "coreutils")},
		{Name: "SystemVerification", Run: system(n)},
		{Name: "Hostname", Run: nodeName(n.Name)},
		{Name: "KubeletVersion", Run: kubeletVersion(n.Cluster.KubernetesVersion)},
		{Name: "Service-kubelet", Run: kubeletService(n)},
		{Name: "Swap", Run: swap(n)},
	}
	return slices.Concat(checks, forwarding(n), ports(n, portUse{kubeletPort(n), kubelet}))
}

func localEtcd(n *config.Node) []Check {
	dir := n.Cluster.Etcd.Local.DataDir
	return append(
		ports(n, portUse{2379, etcd}, portUse{2380, etcd}),
		Check{Name: "DirAvailable-" + dashed(dir), Run: etcdData(n, dir)})
}

func staticPods(n *config.Node, manifests map[string][]byte, components ...string) []Check {
	var checks []Check
	for _, c := range components {
		path := manifestPath(n, c)
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(path), Run: staticPod(path, c, manifests[path])})
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
		checks = append(checks, Check{Name: "FileContent-" + dashed(path), Run: switchedOn(path, setting)})
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
		checks = append(checks, Check{Name: fmt.Sprintf("Port-%d", u.port), Run: portFree(n, u)})
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
