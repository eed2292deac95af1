// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

func kernelRows() []row {
	const bridge = "without it, packets between Pods on one Linux bridge bypass Services and network policies (network add-ons without such a bridge do not need it)"
	gone := func(names ...string) func(scene) {
		return func(s scene) {
			for _, name := range names {
				delete(s.files, "sys/module/"+name)
			}
		}
	}
	loadable := func(s scene) {
		gone("overlay", "br_netfilter", "nf_conntrack")(s)
		s.put("/lib/modules/6.12.1-amd64/modules.builtin", "kernel/net/netfilter/nf_conntrack.ko\n")
		s.put("/lib/modules/6.12.1-amd64/modules.dep", "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\n")
	}
	return []row{
		{"CgroupDriver", "systemd is not there", func(s scene) { delete(s.files, "run/systemd/system") },
			[]string{"[ERROR CgroupDriver]: containerd uses the cgroup driver systemd, but this host does not run systemd, so no container can start\n  set SystemdCgroup = false (containerd) or cgroup_manager = \"cgroupfs\" (CRI-O) in its configuration and restart it"}},
		{"CgroupDriver", "two managers", func(s scene) { s.runtime.CgroupDriver = "cgroupfs" },
			[]string{
				"[WARNING CgroupDriver]: containerd uses the cgroup driver cgroupfs while systemd manages the same cgroups, which makes a node unstable under resource pressure\n  set SystemdCgroup = true (containerd) or cgroup_manager = \"systemd\" (CRI-O) in its configuration and restart it",
				"the kubelet will use the cgroup driver cgroupfs of containerd instead of systemd (cgroupDriver in the KubeletConfiguration)"}},
		{"CgroupDriver", "a flag that agrees", func(s scene) {
			s.node.Kubelet.CgroupDriver, s.node.KubeletExtraArgs = "cgroupfs", []config.Arg{{Name: "cgroup-driver", Value: "systemd"}}
		}, nil},
		{"CgroupDriver", "not told", func(s scene) { s.runtime.Version = "1.7.1" },
			[]string{"the container runtime does not report its cgroup driver; see CRI and ContainerRuntimeVersion"}},
		{"KernelModules", "not loaded", loadable,
			[]string{"[WARNING KernelModules]: the kernel module br_netfilter is not loaded; " + bridge + "\n  run `modprobe br_netfilter`, and add br_netfilter to /etc/modules-load.d/k8s.conf"}},
		{"KernelModules", "missing", func(s scene) {
			loadable(s)
			s.node.KubeProxy.Mode = "nftables"
			s.files["sys/module/br_netfilter"] = s.files["etc"]
		},
			[]string{"[WARNING KernelModules]: the kernel module nf_tables is neither loaded nor installed; kube-proxy in nftables mode needs it\n  install the kernel's extra modules (linux-modules-extra on Ubuntu), or use a kernel that has it"}},
		{"KernelModules", "not to be told", func(s scene) { delete(s.files, "sys/module/overlay"); delete(s.files, "proc/config.gz") },
			[]string{"cannot determine whether the kernel has overlay"}},
		{"KernelModules", "built in, by what it shows", func(s scene) {
			gone("overlay", "br_netfilter", "nf_conntrack")(s)
			s.put("/proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n\text4\n")
			s.put("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n")
			s.put("/proc/sys/net/netfilter/nf_conntrack_max", "65536\n")
		}, nil},
		{"KernelModules", "switched off", func(s scene) { s.put("/proc/sys/net/bridge/bridge-nf-call-iptables", "0\n") },
			[]string{"[WARNING KernelModules]: net.bridge.bridge-nf-call-iptables is \"0\", so packets between Pods on one Linux bridge bypass the rules of Services\n  run `sysctl -w net.bridge.bridge-nf-call-iptables=1`, and add net.bridge.bridge-nf-call-iptables=1 to /etc/sysctl.d/k8s.conf"}},
	}
}

func diskRows() []row {
	slow := func(s scene) {
		s.syncs = slices.Concat(s.syncs[:98], []time.Duration{12 * time.Millisecond, time.Second})
	}
	return []row{
		{"EtcdDisk", "one outlier", func(s scene) { s.syncs[50] = time.Second }, nil},
		{"EtcdDisk", "slow", slow,
			[]string{"[WARNING EtcdDisk]: the disk of /var/lib takes 12ms to sync a write (99th percentile of 100), but etcd needs at most 10ms to answer quickly and avoid leader elections under load\n  give etcd a faster disk (etcd.local.dataDir), or stop what else writes to this one"}},
		{"EtcdDisk", "so slow that few fit", func(s scene) { s.syncs = []time.Duration{600 * time.Millisecond} },
			[]string{"[WARNING EtcdDisk]: the disk of /var/lib takes 600ms to sync a write (99th percentile of 1), but etcd needs at most 10ms to answer quickly and avoid leader elections under load\n  give etcd a faster disk (etcd.local.dataDir), or stop what else writes to this one"}},
		{"EtcdDisk", "failing", func(s scene) { s.unknown["syncs"] = errors.New("measure the disk of /var/lib: input/output error") },
			[]string{"[WARNING EtcdDisk]: cannot measure the disk of /var/lib: measure the disk of /var/lib: input/output error\n  check that the file system is writable and has free space"}},
		{"EtcdDisk", "not root", func(s scene) { s.uid, s.unknown["syncs"] = 1000, errors.New("permission denied") },
			[]string{"did not measure the disk of /var/lib: this needs root"}},
		{"EtcdDisk", "dry run", func(s scene) { s.unknown["syncs"] = host.ErrNotInPlan },
			[]string{"how fast the disk of /var/lib is"}},
		{"WritableFolders", "read-only", func(s scene) {
			s.unwritable = map[string]error{"/etc": errors.Wrap(unix.EROFS, "write to /etc")}
		}, []string{"[ERROR WritableFolders]: write to /etc: read-only file system\n  make sure that /etc is a directory on a file system that is mounted writable and has free space"}},
		{"WritableFolders", "one of several", func(s scene) {
			s.mkdir("/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd")
			s.unwritable = map[string]error{"/etc": unix.EIO, "/var/lib/etcd": errors.Wrap(unix.EIO, "write to /var/lib/etcd")}
		}, []string{"[ERROR WritableFolders]: write to /var/lib/etcd: input/output error\n  make sure that /var/lib/etcd is a directory on a file system that is mounted writable and has free space"}},
		{"WritableFolders", "not root", func(s scene) { s.uid = 1000 },
			[]string{"writing to these directories needs root; see IsPrivilegedUser"}},
		{"WritableFolders", "dry run", func(s scene) { s.unwritable = map[string]error{"/etc": host.ErrNotInPlan} },
			[]string{"whether directories can be written to"}},
	}
}

func spaceRows() []row {
	full := func(path string, free, total uint64) func(scene) {
		return func(s scene) {
			s.mkdir(path)
			s.space[path] = host.Space{Free: free, Total: total, FreeInodes: 900_000, TotalInodes: 1_000_000}
		}
	}
	const remedy = "\n  free some space, or mount a larger disk there"
	return []row{
		{"DiskSpace-kubernetes", "full", full("/etc/kubernetes", 9<<20, 1<<30),
			[]string{"[ERROR DiskSpace-kubernetes]: the file system of /etc/kubernetes, for certificates, kubeconfigs and static Pods, has 9 MiB free; at least 10 MiB are needed" + remedy}},
		{"DiskSpace-kubelet", "evicting", full("/var/lib/kubelet", 9<<30, 100<<30),
			[]string{"[WARNING DiskSpace-kubelet]: the file system of /var/lib/kubelet, for volumes and logs of Pods, has 9216 MiB free, less than the 10 GiB at which the kubelet evicts Pods (evictionHard nodefs.available 10%)" + remedy}},
		{"DiskSpace-kubelet", "another threshold", func(s scene) {
			full("/var/lib/kubelet", 9<<30, 100<<30)(s)
			s.node.Kubelet.EvictionHard = map[string]string{"nodefs.available": "2Gi"}
		}, nil},
		{"DiskSpace-kubelet", "thresholds of other signals only", func(s scene) {
			full("/var/lib/kubelet", 9<<30, 100<<30)(s)
			s.node.Kubelet.EvictionHard = map[string]string{"memory.available": "100Mi"}
		}, nil},
		{"DiskSpace-kubelet", "few inodes", func(s scene) {
			s.mkdir("/var/lib/kubelet")
			s.space["/var/lib/kubelet"] = host.Space{Free: 90 << 30, Total: 100 << 30, FreeInodes: 40_000, TotalInodes: 1_000_000}
		}, []string{"[WARNING DiskSpace-kubelet]: the file system of /var/lib/kubelet, for volumes and logs of Pods, has 40000 inodes free, less than the 50000 at which the kubelet evicts Pods (evictionHard nodefs.inodesFree 5%)\n  remove small files, or mount another disk there"}},
		{"DiskSpace-runtime", "little", full("/var/lib/containerd", 1<<30, 4<<30),
			[]string{"[WARNING DiskSpace-runtime]: the file system of /var/lib/containerd, for images and containers, has 1024 MiB free; 2048 MiB are recommended" + remedy}},
		{"DiskSpace-runtime", "not told", func(s scene) { s.unknown["images"] = errors.New("no answer") },
			[]string{"the container runtime does not say where it keeps images; see CRI"}},
		{"DiskSpace-etcd", "no inodes", func(s scene) { s.space["/var/lib"] = host.Space{Free: 9 << 30, Total: 10 << 30, TotalInodes: 10} },
			[]string{"[ERROR DiskSpace-etcd]: the file system of /var/lib, for etcd's data, has 0 inodes free; at least 5000 are needed\n  remove small files, or mount another disk there"}},
		{"DiskSpace-etcd", "btrfs counts no inodes", func(s scene) { s.space["/var/lib"] = host.Space{Free: 9 << 30, Total: 10 << 30} }, nil},
		{"DiskSpace-etcd", "not to be told", func(s scene) { s.unknown["space"] = errors.New("statfs: input/output error") },
			[]string{"[WARNING DiskSpace-etcd]: cannot read the free space of /var/lib: statfs: input/output error\n  check it with `df /var/lib`"}},
	}
}

func reachRows() []row {
	another := func(name string, mtu int, addrs ...string) func(scene) {
		return func(s scene) {
			i := host.Interface{Name: name, MTU: mtu}
			for _, a := range addrs {
				i.Addresses = append(i.Addresses, netip.MustParseAddr(a))
			}
			s.interfaces = append(s.interfaces, i)
		}
	}
	behind := func(s scene) { s.node.Cluster.ControlPlaneEndpoint = "api.example.org" }
	const second = "[ERROR ExistingCluster]: an API server answers at api.example.org:6443 already, and this host would make a second cluster behind the same endpoint\n" +
		"  join the cluster that is there, as a control plane: `slipway token create --print-join-command --control-plane` on one of its control planes prints the command; if that cluster is no longer wanted, stop it first"
	return []row{
		{"ExistingCluster", "alive", func(s scene) { behind(s); s.answers["https://api.example.org:6443/version"] = "{}" }, []string{second}},
		{"ExistingCluster", "without anonymous requests", func(s scene) {
			behind(s)
			s.unknown["https://api.example.org:6443/version"] = &host.ProbeError{Status: 401}
		}, []string{second}},
		{"ExistingCluster", "a load balancer alone", func(s scene) {
			behind(s)
			s.unknown["https://api.example.org:6443/version"] = &host.ProbeError{Status: 503}
		}, nil},
		{"ExistingCluster", "nothing there", behind, nil},
		{"ExistingCluster", "this host is its control plane", func(s scene) {
			behind(s)
			s.answers["https://api.example.org:6443/version"] = "{}"
			s.put("/etc/kubernetes/manifests/kube-apiserver.yaml", "")
		}, nil},
		{"ExistingCluster", "this host has its data", func(s scene) {
			behind(s)
			s.answers["https://api.example.org:6443/version"] = "{}"
			s.mkdir("/var/lib/etcd/member")
		}, nil},
		{"ExistingCluster", "dry run", func(s scene) { behind(s); s.unknown["https://api.example.org:6443/version"] = host.ErrNotInPlan },
			[]string{"whether api.example.org:6443 serves a cluster already"}},
		{"Hostname", "another host's address", func(s scene) { s.names["node-1"] = "192.0.2.99" },
			[]string{"[WARNING Hostname]: the node name \"node-1\" resolves to 192.0.2.99, which is not an address of this host, so programs that look it up will reach another host\n  fix it in /etc/hosts or in DNS"}},
		{"Hostname", "Debian's loopback address", func(s scene) { s.names["node-1"] = "127.0.1.1" }, nil},
		{"Hostname", "dry run", func(s scene) { s.unknown["names"] = host.ErrNotInPlan },
			[]string{"whether \"node-1\" resolves"}},
		{"ControlPlaneEndpoint", "unknown", func(s scene) { s.node.Cluster.ControlPlaneEndpoint = "api.example.org:6443" },
			[]string{"[ERROR ControlPlaneEndpoint]: the control plane endpoint \"api.example.org\" does not resolve on this host (no address), so the kubelet cannot find the API server\n  add the name to DNS or to /etc/hosts, or choose another controlPlaneEndpoint"}},
		{"ControlPlaneEndpoint", "known", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint, s.names["api.example.org"] = "api.example.org", "192.0.2.99"
		}, nil},
		{"ControlPlaneEndpoint", "dry run", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint, s.unknown["names"] = "api.example.org", host.ErrNotInPlan
		}, []string{"whether \"api.example.org\" resolves"}},
		{"MTU", "small", func(s scene) { s.interfaces[0].MTU = 1200 },
			[]string{"[WARNING MTU]: eth0, the interface of the default route, has MTU 1200; IPv6 needs at least 1280, and a Pod network that encapsulates takes about 50 of it\n  raise it with `ip link set eth0 mtu 1500`, if that network allows it"}},
		{"MTU", "the Pods' is larger", another("cni0", 9000),
			[]string{"[WARNING MTU]: cni0 has MTU 9000, but eth0, the interface of the default route, has 1500, so full-size packets of Pods to other hosts get lost\n  set the network add-on's MTU to at most 1500"}},
		{"MTU", "the node's is smaller", func(s scene) { s.interfaces[0].Addresses = nil; another("tun0", 1420, "192.0.2.10")(s) },
			[]string{"[WARNING MTU]: this node's address 192.0.2.10 is on tun0 with MTU 1420, but network add-ons use that of eth0, the interface of the default route: 1500\n  set the add-on's MTU to fit tun0, or give both interfaces the same MTU"}},
		{"MTU", "jumbo frames besides", another("eth1", 9000, "198.51.100.1"), nil},
		{"MTU", "no way out", func(s scene) { s.interfaces[0].Default = false },
			[]string{"this host has no default route"}},
		{"MTU", "not to be told", func(s scene) { s.unknown["interfaces"] = errors.New("no netlink") },
			[]string{"[WARNING MTU]: cannot read the MTU of the network interfaces: no netlink\n  compare them with `ip link`"}},
	}
}
