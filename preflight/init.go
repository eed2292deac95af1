// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// The components of a control plane node, by the names of their programs and their static Pods' files.
const (
	apiServer         = config.APIServerComponent
	controllerManager = config.ControllerManagerComponent
	scheduler         = config.SchedulerComponent
	etcd              = config.EtcdComponent
	kubelet           = config.KubeletComponent
)

// Init lists the checks of a host that becomes the first control plane node. manifests holds this configuration's static Pods, by
// path; they show what an earlier run with the same configuration left. Images are a check of their own (ImagePull), because it
// changes the runtime's store.
func Init(n *config.Node, manifests map[string][]byte) []Check {
	checks := slices.Concat(
		[]Check{
			{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"},
			{Name: "ExistingCluster", Run: with(n, existingCluster), Description: "no API server answers at the control plane's endpoint yet, unless this host is one of its control planes, or was"},
		},
		controlPlane(n),
		[]Check{{Name: "AnonymousAccess", Run: with(n, anonymousAccess), Description: "an AuthenticationConfiguration, where there is one, allows anonymous requests to the API server's probes (error), and to cluster-info (warning)"}},
		staticPods(n, manifests, apiServer, controllerManager, scheduler, etcd),
		proxies(n),
		node(n),
		networks(n),
		networkAddOn(n),
	)
	if external := n.Cluster.Etcd.External; external != nil {
		return append(checks, externalEtcd(external)...)
	}
	return append(checks, localEtcd(n)...)
}

// controlPlane lists the checks of every control plane, the first or another.
func controlPlane(n *config.Node) []Check {
	return append([]Check{
		{Name: "NumCPU", Run: numCPU, Description: "at least 2 CPUs"},
		{Name: "Mem", Run: memory, Description: "at least 1700 MiB of memory"},
		{Name: "KubernetesVersion", Run: with(n.Cluster.KubernetesVersion, kubernetesVersion), Description: "not newer than this program supports"},
	}, ports(n, portUse{bindAddress(n.Cluster.APIServer.ControlPlaneComponent, ""), int(n.BindPort), apiServer},
		portUse{bindAddress(n.Cluster.Scheduler, loopback), 10259, scheduler},
		portUse{bindAddress(n.Cluster.ControllerManager, loopback), 10257, controllerManager})...)
}

// node lists the checks of every node, whatever its role.
func node(n *config.Node) []Check {
	m := &n.Machine
	checks := []Check{
		{Name: "CRI", Run: with(n.CRISocket, runtimeReady), Description: "the container runtime answers and is ready"},
		{Name: "ContainerRuntimeVersion", Run: with(m, runtimeVersion), Description: "the runtime can report its cgroup driver to the kubelet, or both use the same one"},
		{Name: "CgroupDriver", Run: with(m, cgroupDriver), Description: "the runtime's cgroup driver works on this host and fits systemd (warning)"},
		{Name: "FileExisting-losetup", Run: program("losetup", "mount (Debian) or util-linux"), Description: "the program is in PATH"},
		{Name: "FileExisting-mount", Run: program("mount", "mount (Debian) or util-linux"), Description: "the program is in PATH"},
		{Name: "FileExisting-cp", Run: program("cp", "coreutils"), Description: "the program is in PATH"},
		{Name: "SystemVerification", Run: with(m, system), Description: "kernel release and options, cgroup controllers; no cgroup v1, unless failCgroupV1 allows it"},
		{Name: "KernelModules", Run: with(n, kernelModules), Description: "overlay, br_netfilter, nf_conntrack and the modules of kube-proxy's mode are loaded or built in (warning)"},
		KernelDefaults(m),
		Patches(n),
		{Name: "Hostname", Run: with(n.Name, nodeName), Description: "the node's name is valid (error), and resolves to this host (warning)"},
		{Name: "DNSLoop", Run: with(n, dnsLoop), Description: "the kubelet's resolv.conf names servers that Pods can reach, not this host's loopback, where CoreDNS would ask itself (warning)"},
		{Name: "ResolvConf", Run: with(m, resolvConf), Description: "the file with the name servers for Pods exists"},
		{Name: "ControlPlaneEndpoint", Run: with(n, controlPlaneEndpoint), Description: "the name of the control plane's endpoint resolves"},
		{Name: "KubeletVersion", Run: with(n.Cluster.KubernetesVersion, kubeletVersion), Description: "the kubelet is not newer than the control plane, and at most three minor versions older"},
		{Name: "Service-kubelet", Run: with(n, kubeletService), Description: "systemd has the kubelet's unit, and it is not masked; it is enabled (warning)"},
		{Name: "Swap", Run: with(m, swap), Description: "no swap, unless the kubelet's settings allow it (then a warning)"},
		{Name: "WritableFolders", Run: with(n, writable), Description: "a file can be created, synced and renamed in each directory that will be written to"},
		{Name: "DiskSpace-kubernetes", Run: space(m, m.Paths.Kubernetes, kubernetesNeed), Description: "10 MiB (error), 50 MiB (warning) and 5000 inodes free for /etc/kubernetes"},
		{Name: "DiskSpace-kubelet", Run: space(m, m.Paths.Kubelet, kubeletNeed), Description: "100 MiB (error), 1 GiB (warning) and 5000 inodes free for /var/lib/kubelet, and more than the kubelet evicts at (warning)"},
		{Name: "DiskSpace-runtime", Run: with(m, runtimeSpace), Description: "500 MiB (error), 2 GiB (warning) and 5000 inodes free where the runtime keeps images, and more than the kubelet evicts at (warning)"},
		{Name: "Firewalld", Run: with(nodeOpenings(n), firewalld), Description: firewallChecked},
		{Name: "MTU", Run: with(n, mtu), Description: "the MTU of the default route's interface fits IPv6 and the other interfaces (warning)"},
	}
	return slices.Concat(checks, forwarding(n), ports(n, portUse{m.Kubelet.Address, kubeletPort(m), kubelet}))
}

// KernelDefaults is the check that a kubelet with protectKernelDefaults starts on this host.
func KernelDefaults(m *config.Machine) Check {
	return Check{Name: "KernelDefaults", Run: with(m, kernelDefaults), Description: "kernel parameters have the values that the kubelet insists on, if its protectKernelDefaults is set"}
}

// Patches is the check that the directory of patches has valid patches. kubeadm doesn't mind other files in it.
func Patches(n *config.Node) Check {
	return Check{Name: "Patches", Run: with(n.PatchesDir, patches), Description: "the directory of patches can be read, and its patches are valid (error); files like patches are named like patches (warning)"}
}

// EtcdDataCheck is the name of the check that etcd's directory has no other data.
func EtcdDataCheck(n *config.Node) string {
	return "DirAvailable-" + dashed(n.Cluster.Etcd.Local.DataDir)
}

func localEtcd(n *config.Node) []Check {
	dir := n.Cluster.Etcd.Local.DataDir
	return append(
		ports(n, portUse{n.AdvertiseAddress.String(), 2379, etcd}, portUse{n.AdvertiseAddress.String(), 2380, etcd}),
		EtcdImageTag(n, ""),
		Check{Name: EtcdDataCheck(n), Run: etcdData(n, dir), Description: "etcd's directory is empty, or holds the data of this node's etcd"},
		Check{Name: "EtcdDisk", Run: with(dir, etcdDisk), Description: "fdatasync after a write of 2300 bytes takes at most 10 ms at the 99th percentile of a hundred, measured for half a second at most (warning)"},
		Check{Name: "DiskSpace-etcd", Run: space(&n.Machine, dir, etcdNeed), Description: "200 MiB (error), 2 GiB (warning) and 5000 inodes free for etcd's directory"})
}

func staticPods(n *config.Node, manifests map[string][]byte, components ...string) []Check {
	var checks []Check
	for _, c := range components {
		path := n.Paths.StaticPod(c)
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(path), Run: staticPod(path, c, manifests[path]), Description: "the manifest does not exist, or is this configuration's, edited or not"})
	}
	return checks
}

func forwarding(n *config.Node) []Check {
	var v4, v6 bool
	for _, p := range n.ServiceSubnets() {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	var checks []Check
	add := func(path, setting string, more ...func(context.Context, View) []fault.Finding) {
		checks = append(checks, Check{Name: "FileContent-" + dashed(path), Description: "is 1", Run: func(ctx context.Context, h View) []fault.Finding {
			found := switchedOn(path, setting)(ctx, h)
			for _, also := range more {
				found = append(found, also(ctx, h)...)
			}
			return found
		}})
	}
	if v4 {
		add("/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward")
	}
	if v6 {
		add("/proc/sys/net/ipv6/conf/default/forwarding", "net.ipv6.conf.default.forwarding", forwardsIPv6)
	}
	return checks
}

// forwardsIPv6 warns of a host that doesn't forward IPv6: the kernel asks conf.all, and kubeadm's check conf.default, which is for
// interfaces to come. A network add-on may set it later.
func forwardsIPv6(_ context.Context, h View) []fault.Finding {
	const setting = "net.ipv6.conf.all.forwarding"
	path := "/proc/sys/" + strings.ReplaceAll(setting, ".", "/")
	text, err := h.ReadFile(path)
	if value := strings.TrimSpace(string(text)); err == nil && value != "1" {
		return warn("%s is %q, so this host does not forward packets of Pods, unless a network add-on sets it", path, value).
			remedy(sysctlRemedy+"; first set accept_ra=2 for an interface whose default route comes from a router's advertisements, because it is lost otherwise", setting)
	}
	return nil
}

func ports(n *config.Node, uses ...portUse) []Check {
	var checks []Check
	for _, u := range uses {
		checks = append(checks, Check{Name: fmt.Sprintf("Port-%d", u.port), Run: portFree(n, u), Description: "the port is free, or held by this node's " + u.program})
	}
	return checks
}

// loopback is where the scheduler and the controller manager listen by default.
const loopback = "127.0.0.1"

// bindAddress is where a component listens: at preset, unless its extra arguments say otherwise.
func bindAddress(c config.ControlPlaneComponent, preset string) string {
	if address, given := config.LastArg(c.ExtraArgs, "bind-address"); given {
		return address
	}
	return preset
}

func kubeletPort(m *config.Machine) int {
	if m.Kubelet.Port != 0 {
		return int(m.Kubelet.Port)
	}
	return 10250
}

// dashed returns a path as it appears in checks' names.
func dashed(path string) string { return strings.ReplaceAll(path, "/", "-") }

// Configuration checks that an existing control plane was made with this run's configuration. differences lists the differences.
func Configuration(differences func(context.Context) []fault.Finding) Check {
	return Check{
		Name:        "Configuration",
		Description: "an existing control plane was made with the same configuration: the kubelet's files, certificates, kubeconfig files, ConfigMap kubeadm-config; later edits stay",
		Run:         func(ctx context.Context, _ View) []fault.Finding { return differences(ctx) },
	}
}

// endpointTimeout is an API server's time to answer at the control plane's endpoint. An unused address may give no answer.
const endpointTimeout = 3 * time.Second

// existingCluster keeps init from making a second cluster behind a living cluster's endpoint, for example when the tool that
// created its first control plane rebuilds that host. With the same CA, kubelets would take the empty cluster's answers for their
// own cluster's, and stop their Pods. A host with a static Pod of the API server, or with data of etcd, belongs to that cluster.
func existingCluster(ctx context.Context, h View, n *config.Node) []fault.Finding {
	if n.Cluster.ControlPlaneEndpoint == "" || n.Cluster.Etcd.Local == nil ||
		exists(h, n.Paths.StaticPod(apiServer)) || exists(h, filepath.Join(n.Cluster.Etcd.Local.DataDir, "member")) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	_, err := h.Fetch(ctx, host.Probe{URL: "https://" + n.Endpoint() + "/version"})
	var answer *host.ProbeError
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return unasked("whether %s serves a cluster already", n.Endpoint())
	case err == nil, errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden):
		return fail("an API server answers at %s already, and this host would make a second cluster behind the same endpoint", n.Endpoint()).
			remedy("join that cluster as a control plane: `slipway token create --print-join-command --control-plane` on one of its control planes prints the command; if you no longer need that cluster, stop it first")
	}
	return nil
}
