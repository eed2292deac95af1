// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

// scene is a host, the node it's asked for, and the static Pods to write.
type scene struct {
	*fakeHost
	node      *config.Node
	manifests map[string][]byte
	t         *testing.T
}

// wants makes this run write the reference's manifest of a component.
func (s scene) wants(component string) {
	s.manifests["/etc/kubernetes/manifests/"+component+".yaml"] = []byte(manifest(s.t, component))
}

// earlier puts an earlier run's manifest on the host, with edits.
func (s scene) earlier(component string, edits ...string) {
	s.put("/etc/kubernetes/manifests/"+component+".yaml", strings.NewReplacer(edits...).Replace(manifest(s.t, component)))
}

func (s scene) external() {
	s.node.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{Endpoints: []string{"http://192.0.2.20:2379/"}}}
}

// protects makes the kubelet insist on the kernel's parameters, and sets them, some to other values.
func (s scene) protects(others map[string]string) {
	s.node.Kubelet.ProtectKernelDefaults = true
	for name, value := range KubeletParameters() {
		s.put("/proc/sys/"+name, cmp.Or(others[name], value)+"\n")
	}
}

func newScene(t *testing.T) scene {
	return scene{healthy(t), controlPlaneNode(), map[string][]byte{}, t}
}

func (s scene) found(name string) []string {
	s.t.Helper()
	checks := Init(s.node, s.manifests)
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		s.t.Fatalf("no check %s in %v", name, names(checks))
	}
	var found []string
	for _, text := range texts(checks[i].findings(s.t.Context(), s.fakeHost)) {
		found = append(found, strings.ReplaceAll(text, s.Root, ""))
	}
	return found
}

type row struct {
	check string
	name  string
	scene func(s scene)
	want  []string
}

func (r row) run(t *testing.T) {
	t.Run(r.check+"/"+r.name, func(t *testing.T) {
		s := newScene(t)
		r.scene(s)
		got := s.found(r.check)
		fact.List(t, got, r.want...)
		for _, text := range got {
			if (strings.HasPrefix(text, "[ERROR ") || strings.HasPrefix(text, "[WARNING ")) && !strings.Contains(text, "\n  ") {
				t.Errorf("%q does not say what to do", text)
			}
		}
	})
}

const (
	port6443  = "Port-6443"
	port10250 = "Port-10250"
	apiFile   = "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml"
	etcdFile  = "FileAvailable--etc-kubernetes-manifests-etcd.yaml"
	etcdDir   = "DirAvailable--var-lib-etcd"
	forward4  = "FileContent--proc-sys-net-ipv4-ip_forward"
	forward6  = "FileContent--proc-sys-net-ipv6-conf-default-forwarding"
)

func machineRows() []row {
	off := false
	return []row{
		{"IsPrivilegedUser", "another user", func(s scene) { s.Has.UID = 1000 },
			[]string{"[ERROR IsPrivilegedUser] | root | 1000 | sudo"}},
		{"NumCPU", "one", func(s scene) { s.Has.CPUs = 1 },
			[]string{"[ERROR NumCPU] | 1 CPU | 2"}},
		{"Mem", "just enough", func(s scene) { s.Has.Memory = 1700 << 20 }, nil},
		{"Mem", "too little", func(s scene) { s.Has.Memory = 1700<<20 - 1 },
			[]string{"[ERROR Mem] | 1699 MiB | memory | 1700 MiB"}},
		{"Mem", "not to be told", func(s scene) { s.Fail["MemoryBytes"] = errors.New("no sysinfo") },
			[]string{"[WARNING Mem] | memory | no sysinfo | 1700 MiB"}},
		{"Swap", "on", func(s scene) { s.Has.Swap = []string{"/dev/sda2", "/swapfile"} },
			[]string{"[ERROR Swap] | /dev/sda2 | /swapfile | kubelet's default | `slipway host prepare phase swap` | failSwapOn: false | KubeletConfiguration"}},
		{"Swap", "allowed in the configuration", func(s scene) { s.Has.Swap, s.node.Kubelet.FailSwapOn = []string{"/dev/sda2"}, &off }, swapWarning("failSwapOn | KubeletConfiguration")},
		{"Swap", "allowed by a flag", func(s scene) {
			s.Has.Swap, s.node.KubeletExtraArgs = []string{"/dev/sda2"}, []config.Arg{{Name: "fail-swap-on", Value: "false"}}
		}, swapWarning("--fail-swap-on | nodeRegistration.kubeletExtraArgs")},
		{"Swap", "allowed by a drop-in of the kubelet's", func(s scene) {
			s.Has.Swap, s.node.KubeletExtraArgs = []string{"/dev/sda2"}, []config.Arg{{Name: "config-dir", Value: "/etc/kubelet.d"}}
			s.put("/etc/kubelet.d/50-swap.conf", "failSwapOn: false\n")
			s.put("/etc/kubelet.d/60-swap.yaml", "failSwapOn: true\n")
		}, swapWarning("failSwapOn | /etc/kubelet.d/50-swap.conf")},
		{"Swap", "forbidden by a flag over a drop-in", func(s scene) {
			s.Has.Swap, s.node.Kubelet.FailSwapOn = []string{"/dev/sda2"}, &off
			s.put("/etc/systemd/system/kubelet.service.d/20-x.conf", "[Service]\n# --fail-swap-on=false\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2 --fail-swap-on\"\n")
		}, []string{"[ERROR Swap] | /dev/sda2 | --fail-swap-on | /etc/systemd/system/kubelet.service.d/20-x.conf | `slipway host prepare phase swap` | failSwapOn: false | KubeletConfiguration"}},
		{"Swap", "allowed by the package's file", func(s scene) {
			s.Has.Swap = []string{"/dev/sda2"}
			s.put("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--fail-swap-on=false\n")
		}, swapWarning("--fail-swap-on | /etc/default/kubelet")},
		{"Swap", "not to be told", func(s scene) { s.Fail["Swap"] = errors.New("no /proc") },
			[]string{"[WARNING Swap] | no /proc | `swapon --show`"}},
		{"KernelDefaults", "as the kubelet wants them", func(s scene) { s.protects(nil) }, nil},
		{"KernelDefaults", "others", func(s scene) { s.protects(map[string]string{"vm/panic_on_oom": "1", "kernel/panic": "0"}) },
			[]string{"[ERROR KernelDefaults] | protectKernelDefaults in the KubeletConfiguration | kernel.panic=10 | 0 | vm.panic_on_oom=0 | 1 | `slipway host prepare phase kernel` | sysctl | /etc/sysctl.d"}},
		{"KernelDefaults", "others, which the kubelet changes", func(s scene) { s.put("/proc/sys/kernel/panic", "0\n") }, nil},
		{"KernelDefaults", "by a flag", func(s scene) {
			s.protects(map[string]string{"kernel/panic": "0"})
			s.node.Kubelet.ProtectKernelDefaults = false
			s.node.KubeletExtraArgs = []config.Arg{{Name: "protect-kernel-defaults", Value: "true"}}
		}, []string{"[ERROR KernelDefaults] | --protect-kernel-defaults in nodeRegistration.kubeletExtraArgs | kernel.panic=10"}},
		{"KernelDefaults", "turned off by a file of --config-dir", func(s scene) {
			s.protects(map[string]string{"kernel/panic": "0"})
			s.node.KubeletExtraArgs = []config.Arg{{Name: "config-dir", Value: "/etc/kubelet.d"}}
			s.put("/etc/kubelet.d/1.conf", "protectKernelDefaults: false\n")
			s.put("/etc/kubelet.d/2.conf", "maxPods: 17\n")
		}, nil},
		{"KernelDefaults", "turned on by one", func(s scene) {
			s.protects(map[string]string{"kernel/panic": "0"})
			s.node.Kubelet.ProtectKernelDefaults = false
			s.node.KubeletExtraArgs = []config.Arg{{Name: "config-dir", Value: "/etc/kubelet.d"}}
			s.put("/etc/kubelet.d/1.conf", "protectKernelDefaults: true\n")
			s.put("/etc/kubelet.d/2.conf", "maxPods: 17\n")
		}, []string{"[ERROR KernelDefaults] | protectKernelDefaults in /etc/kubelet.d/1.conf | kernel.panic=10"}},
		{"KernelDefaults", "not to be read", func(s scene) {
			s.protects(nil)
			if err := os.Remove(s.Root + "/proc/sys/kernel/panic"); err != nil {
				s.t.Fatal(err)
			}
		}, []string{"[WARNING KernelDefaults] | kernel.panic | protectKernelDefaults | 10"}},
		{"Hostname", "not a name", func(s scene) { s.node.Name = "node_1" },
			[]string{"[ERROR Hostname] | \"node_1\" | RFC 1123 | --node-name | nodeRegistration.name"}},
		{"Hostname", "unknown to the resolver", func(s scene) { s.Has.Names, s.Fail["LookupHost"] = nil, errors.New("lookup node-1: no such host") },
			[]string{"[WARNING Hostname] | \"node-1\" | lookup node-1 | /etc/hosts | DNS"}},
		{"Hostname", "without an address", func(s scene) { s.Has.Names = map[string]string{} },
			[]string{"[WARNING Hostname] | \"node-1\" | no address | /etc/hosts | DNS"}},
		{"FileExisting-losetup", "missing", func(s scene) { delete(s.Has.Programs, "losetup") },
			[]string{"[ERROR FileExisting-losetup] | losetup | PATH | util-linux"}},
		{"FileExisting-mount", "missing", func(s scene) { delete(s.Has.Programs, "mount") },
			[]string{"[ERROR FileExisting-mount] | mount | PATH | util-linux"}},
		{"FileExisting-cp", "missing", func(s scene) { delete(s.Has.Programs, "cp") },
			[]string{"[ERROR FileExisting-cp] | cp | PATH | coreutils"}},
		{forward4, "off", func(s scene) { s.put("/proc/sys/net/ipv4/ip_forward", "0\n") },
			[]string{"[ERROR " + forward4 + "] | /proc/sys/net/ipv4/ip_forward | \"0\" | `sysctl -w net.ipv4.ip_forward=1` | /etc/sysctl.d/k8s.conf"}},
		{forward6, "not in this kernel", func(s scene) { s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112" },
			[]string{"[ERROR " + forward6 + "] | /proc/sys/net/ipv6/conf/default/forwarding"}},
		{forward6, "on", func(s scene) {
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.put("/proc/sys/net/ipv6/conf/default/forwarding", "1\n")
			s.put("/proc/sys/net/ipv6/conf/all/forwarding", "1\n")
		}, nil},
		{forward6, "on for interfaces to come", func(s scene) {
			s.node.Cluster.Networking.ServiceSubnet = "fd00:2::/112"
			s.put("/proc/sys/net/ipv6/conf/default/forwarding", "1\n")
			s.put("/proc/sys/net/ipv6/conf/all/forwarding", "0\n")
		}, []string{"[WARNING " + forward6 + "] | /proc/sys/net/ipv6/conf/all/forwarding | \"0\" | `sysctl -w net.ipv6.conf.all.forwarding=1` | accept_ra=2"}},
	}
}

func swapWarning(from string) []string {
	return []string{"[WARNING Swap] | /dev/sda2 | " + from + " | memorySwap | KubeletConfiguration | cgroup v2 | https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/"}
}

const bundledDropIn = "/etc/systemd/system/kubelet.service.d/20-slipway.conf"

// twoKubelets has a newer kubelet in /usr/bin, where a shell finds it, and a drop-in with a command.
func (s scene) twoKubelets(command string) {
	s.put("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\nExecStart=\nExecStart="+command+" $KUBELET_EXTRA_ARGS\n")
	s.On.ProgramVersion = func(_ context.Context, path string) (string, error) {
		return map[string]string{"/usr/bin/kubelet": "Kubernetes v1.38.0", "/usr/local/bin/kubelet": "Kubernetes v1.37.2"}[path], nil
	}
}

func versionRows() []row {
	newer := []string{"[ERROR KubeletVersion] | kubelet (v1.38.0) | newer | control plane (v1.37.2) | kubelet 1.37 | --kubernetes-version"}
	return []row{
		{"KubernetesVersion", "older", func(s scene) { s.node.Cluster.KubernetesVersion = "v1.35.9" }, nil},
		{"KubernetesVersion", "newer patch", func(s scene) { s.node.Cluster.KubernetesVersion = "v1.37.99" }, nil},
		{"KubernetesVersion", "newer", func(s scene) { s.node.Cluster.KubernetesVersion = "v1.38.0" },
			[]string{"[WARNING KubernetesVersion] | 1.38.0 | newer | 1.37 | for Kubernetes 1.38"}},
		{"KubernetesVersion", "none", func(s scene) { s.node.Cluster.KubernetesVersion = "stable" },
			[]string{"[ERROR KubernetesVersion] | \"stable\" | v1.37.2 | kubernetesVersion | --kubernetes-version"}},
		{"KubeletVersion", "newer patch", func(s scene) { s.Has.Programs["kubelet"] = "Kubernetes v1.37.9" }, nil},
		{"KubeletVersion", "oldest", func(s scene) { s.Has.Programs["kubelet"] = "Kubernetes v1.34.0" }, nil},
		{"KubeletVersion", "newer", func(s scene) { s.node.Cluster.KubernetesVersion = "v1.35.4" },
			[]string{"[ERROR KubeletVersion] | kubelet (v1.37.2) | newer | control plane (v1.35.4) | kubelet 1.35 | --kubernetes-version"}},
		{"KubeletVersion", "too old", func(s scene) { s.Has.Programs["kubelet"] = "Kubernetes v1.33.9" },
			[]string{"[ERROR KubeletVersion] | kubelet (v1.33.9) | older | 1.34 | kubelet 1.37"}},
		{"KubeletVersion", "missing", func(s scene) { delete(s.Has.Programs, "kubelet") },
			[]string{"[ERROR KubeletVersion] | not found | kubelet v1.37.2"}},
		{"KubeletVersion", "slow", func(s scene) { s.Fail["ProgramVersion"] = fault.New("did not finish within 2m0s", "see `top`") },
			[]string{"[ERROR KubeletVersion] | 2m0s | `top`"}},
		{"KubeletVersion", "broken", func(s scene) { s.Fail["ProgramVersion"] = errors.New("killed") },
			[]string{"[ERROR KubeletVersion] | killed | kubelet v1.37.2"}},
		{"KubeletVersion", "started by the unit, not first in PATH", func(s scene) {
			s.twoKubelets("/usr/local/bin/kubelet")
			s.put("/usr/local/bin/kubelet", "")
		}, nil},
		{"KubeletVersion", "not there, first in PATH", func(s scene) { s.twoKubelets("/usr/local/bin/kubelet") }, newer},
		{"KubeletVersion", "started by a wrapper", func(s scene) {
			s.twoKubelets("/usr/bin/numactl -N 0 /usr/local/bin/kubelet")
			s.put("/usr/local/bin/kubelet", "")
			s.put("/usr/bin/numactl", "")
		}, nil},
		{"KubeletVersion", "started by a script", func(s scene) {
			s.twoKubelets("/opt/start")
			s.put("/opt/start", "")
			s.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", Program: "/opt/start"}
		}, newer},
		{"KubeletVersion", "started by a unit that only systemd can read", func(s scene) {
			s.twoKubelets("/usr/bin/kubelet")
			s.put("/usr/bin/kubelet", "")
			s.put("/usr/local/bin/kubelet", "")
			s.put(bundledDropIn, "")
			s.unreadable(bundledDropIn)
			s.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", Program: "/usr/local/bin/kubelet"}
		}, nil},
		{"KubeletVersion", "garbage", func(s scene) { s.Has.Programs["kubelet"] = "Kubernetes vgarbage" },
			[]string{"[ERROR KubeletVersion] | \"vgarbage\" | kubelet v1.37.2"}},
	}
}

func portRows() []row {
	return []row{
		{port6443, "held by a stranger", func(s scene) { s.Has.Held[6443] = host.Process{PID: 7, Name: "nginx"} },
			[]string{"[ERROR Port-6443] | port 6443 | kube-apiserver | nginx | process 7"}},
		{port6443, "held by who knows", func(s scene) { s.Has.Held[6443] = host.Process{} },
			[]string{"[ERROR Port-6443] | port 6443 | kube-apiserver | `ss -ltnp` | root"}},
		{port6443, "held by another API server", func(s scene) { s.Has.Held[6443] = host.Process{PID: 7, Name: "kube-apiserver"} },
			[]string{"[ERROR Port-6443] | port 6443 | kube-apiserver | process 7 | `slipway reset`"}},
		{port6443, "held by our own", func(s scene) {
			s.Has.Held[6443] = host.Process{PID: 7, Name: "kube-apiserver"}
			s.earlier("kube-apiserver")
		}, []string{"[NOTE Port-6443] | kube-apiserver | process 7 | port 6443"}},
		{"Port-10259", "held by a stranger", func(s scene) { s.Has.Held[10259] = host.Process{PID: 7, Name: "nginx"} },
			[]string{"[ERROR Port-10259] | port 10259 | kube-scheduler | nginx | process 7"}},
		{"Port-10257", "held by a stranger", func(s scene) { s.Has.Held[10257] = host.Process{PID: 7, Name: "nginx"} },
			[]string{"[ERROR Port-10257] | port 10257 | kube-controller-manager | nginx | process 7"}},
		{"Port-2379", "held by a stranger", func(s scene) { s.Has.Held[2379] = host.Process{PID: 7, Name: "nginx"} },
			[]string{"[ERROR Port-2379] | port 2379 | etcd | nginx | process 7"}},
		{"Port-2380", "held by another etcd", func(s scene) { s.Has.Held[2380] = host.Process{PID: 7, Name: "etcd"} },
			[]string{"[ERROR Port-2380] | port 2380 | etcd | process 7 | `slipway reset`"}},
		{"Port-2380", "held by our own", func(s scene) {
			s.Has.Held[2380] = host.Process{PID: 7, Name: "etcd"}
			s.earlier("etcd")
		}, []string{"[NOTE Port-2380] | etcd | process 7 | port 2380"}},
		{port10250, "held by our kubelet", func(s scene) {
			s.Has.Held[10250] = host.Process{PID: 9, Name: "kubelet"}
			s.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", MainPID: 9}
			s.earlier("kube-apiserver")
		}, []string{"[NOTE Port-10250] | kubelet | process 9 | port 10250"}},
		{port10250, "held by a worker's kubelet", func(s scene) {
			s.Has.Held[10250] = host.Process{PID: 9, Name: "kubelet"}
			s.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", MainPID: 9}
		}, strangeKubelet()},
		{port10250, "held by a kubelet without a unit", func(s scene) {
			s.Has.Held[10250] = host.Process{PID: 9, Name: "kubelet"}
			s.earlier("kube-apiserver")
		}, strangeKubelet()},
		{port10250, "held by a kubelet, without systemd", func(s scene) {
			s.Has.Held[10250] = host.Process{PID: 9, Name: "kubelet"}
			s.Fail["Unit"] = errors.New("no bus")
			s.earlier("kube-apiserver")
		}, strangeKubelet()},
	}
}

func strangeKubelet() []string {
	return []string{"[ERROR Port-10250] | port 10250 | kubelet | process 9 | `slipway reset`"}
}

func fileRows() []row {
	const there = "/etc/kubernetes/manifests/kube-apiserver.yaml | "
	const remedy = " | `slipway reset`"
	return []row{
		{apiFile, "the same", func(s scene) { s.wants("kube-apiserver"); s.earlier("kube-apiserver") },
			[]string{"[NOTE " + apiFile + "] | /etc/kubernetes/manifests/kube-apiserver.yaml"}},
		{apiFile, "another argument and image", func(s scene) {
			s.wants("kube-apiserver")
			s.earlier("kube-apiserver", "--secure-port=6443", "--secure-port=8443", "v1.37.2", "v1.36.1")
		}, []string{"[ERROR " + apiFile + "] | " + there + "registry.k8s.io/kube-apiserver:v1.36.1 | registry.k8s.io/kube-apiserver:v1.37.2 | --secure-port=8443 | --secure-port=6443" + remedy}},
		{apiFile, "an argument more, one less", func(s scene) {
			s.wants("kube-apiserver")
			s.earlier("kube-apiserver", "    - --allow-privileged=true\n", "    - --v=4\n")
		}, []string{"[ERROR " + apiFile + "] | " + there + "--v=4 | --allow-privileged=true" + remedy}},
		{apiFile, "another environment, which may be secret", func(s scene) {
			s.wants("kube-apiserver")
			s.earlier("kube-apiserver", "    image:", "    env:\n    - name: PASSWORD\n      value: hunter2\n    image:")
		}, []string{"[ERROR " + apiFile + "] | " + there + "environment" + remedy}},
		{apiFile, "another Pod", func(s scene) {
			s.wants("kube-apiserver")
			s.put("/etc/kubernetes/manifests/kube-apiserver.yaml", manifest(s.t, "etcd"))
		}, strangeFile()},
		{apiFile, "of another namespace", func(s scene) {
			s.wants("kube-apiserver")
			s.earlier("kube-apiserver", "namespace: kube-system", "namespace: default")
		}, strangeFile()},
		{apiFile, "no YAML", func(s scene) {
			s.wants("kube-apiserver")
			s.put("/etc/kubernetes/manifests/kube-apiserver.yaml", "{")
		}, strangeFile()},
		{apiFile, "empty", func(s scene) {
			s.wants("kube-apiserver")
			s.put("/etc/kubernetes/manifests/kube-apiserver.yaml", "")
		}, strangeFile()},
		{apiFile, "not readable", func(s scene) {
			s.unreadable("/etc/kubernetes/manifests/kube-apiserver.yaml")
		}, []string{"[ERROR " + apiFile + "] | /etc/kubernetes/manifests/kube-apiserver.yaml | root"}},
		{"FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml", "not a Pod of that name", func(s scene) {
			s.wants("kube-controller-manager")
			s.put("/etc/kubernetes/manifests/kube-controller-manager.yaml", "a: b")
		}, []string{"[ERROR FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml] | /etc/kubernetes/manifests/kube-controller-manager.yaml | kube-controller-manager"}},
		{"FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml", "not a Pod of that name", func(s scene) {
			s.wants("kube-scheduler")
			s.put("/etc/kubernetes/manifests/kube-scheduler.yaml", "a: b")
		}, []string{"[ERROR FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml] | /etc/kubernetes/manifests/kube-scheduler.yaml | kube-scheduler"}},
		{etcdFile, "though etcd is external", func(s scene) { s.external(); s.earlier("etcd") },
			[]string{"[ERROR " + etcdFile + "] | /etc/kubernetes/manifests/etcd.yaml | `slipway reset`"}},
		{etcdDir, "empty", func(s scene) { s.mkdir("/var/lib/etcd") }, nil},
		{etcdDir, "a file system of its own", func(s scene) { s.mkdir("/var/lib/etcd/lost+found") }, nil},
		{etcdDir, "an old cluster's on a file system of its own", func(s scene) {
			s.mkdir("/var/lib/etcd/lost+found")
			s.put("/var/lib/etcd/member/snap/db", "")
		}, strangeData()},
		{etcdDir, "being probed", func(s scene) { s.put("/var/lib/etcd/.probe.slipway-ABCDEFGH", "") }, nil},
		{etcdDir, "our own", func(s scene) { s.put("/var/lib/etcd/member/snap/db", ""); s.earlier("etcd") },
			[]string{"[NOTE " + etcdDir + "] | /var/lib/etcd | etcd"}},
		{etcdDir, "of an unfinished join", func(s scene) {
			s.node.Join = &config.Join{}
			s.put("/var/lib/etcd/member/snap/db", "")
			s.put("/var/lib/kubelet/slipway-join-unfinished", "")
		}, []string{"[NOTE " + etcdDir + "] | /var/lib/etcd | etcd"}},
		{etcdDir, "of a control plane that joined", func(s scene) {
			s.node.Join = &config.Join{}
			s.put("/var/lib/etcd/member/snap/db", "")
			s.earlier("kube-apiserver")
		}, []string{"[NOTE " + etcdDir + "] | /var/lib/etcd | etcd"}},
		{etcdDir, "an old cluster's, before a join", func(s scene) { s.node.Join = &config.Join{}; s.put("/var/lib/etcd/member/snap/db", "") }, strangeData()},
		{etcdDir, "an old cluster's", func(s scene) { s.put("/var/lib/etcd/member/snap/db", "") }, strangeData()},
		{etcdDir, "something else", func(s scene) { s.put("/var/lib/etcd/notes.txt", ""); s.earlier("etcd") }, strangeData()},
		{etcdDir, "not readable", func(s scene) { s.unreadable("/var/lib/etcd") },
			[]string{"[ERROR " + etcdDir + "] | /var/lib/etcd | empty | permission denied | root"}},
	}
}

func strangeFile() []string {
	return []string{"[ERROR " + apiFile + "] | /etc/kubernetes/manifests/kube-apiserver.yaml | kube-apiserver"}
}

func strangeData() []string {
	return []string{"[ERROR " + etcdDir + "] | /var/lib/etcd | empty | etcd | `slipway reset` | etcd.local.dataDir"}
}

func TestChecks(t *testing.T) {
	for _, r := range allRows() {
		r.run(t)
	}
}

func allRows() []row {
	return slices.Concat(machineRows(), versionRows(), portRows(), fileRows(), serviceRows(), systemRows(), networkRows(), etcdRows(),
		kernelRows(), diskRows(), spaceRows(), reachRows(), flannelRows(), dnsLoopRows(), contradictionRows())
}

// TestEachCheckCanFail: each check has a row above in which it fails.
func TestEachCheckCanFail(t *testing.T) {
	fails := map[string]bool{"ImagePull": true} // images_test.go
	for _, r := range allRows() {
		if len(r.want) > 0 && (strings.HasPrefix(r.want[0], "[ERROR ") || strings.HasPrefix(r.want[0], "[WARNING ")) {
			fails[r.check] = true
		}
	}
	local, external := newScene(t), newScene(t)
	local.node.Cluster.Networking.ServiceSubnet = "10.96.0.0/16,fd00:2::/112"
	external.external()
	local.node.NetworkAddOn.Name = config.Flannel
	for _, s := range []scene{local, external} {
		for _, name := range names(Init(s.node, nil)) {
			if !fails[name] {
				t.Errorf("no row shows %s failing", name)
			}
		}
	}
}
