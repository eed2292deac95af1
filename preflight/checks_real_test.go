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
	const bridge = "bridge"
	gone := func(names ...string) func(scene) {
		return func(s scene) {
			for _, name := range names {
				s.remove("/sys/module/" + name)
			}
		}
	}
	loadable := func(s scene) {
		gone("overlay", "br_netfilter", "nf_conntrack")(s)
		s.put("/lib/modules/6.12.1-amd64/modules.builtin", "kernel/net/netfilter/nf_conntrack.ko\n")
		s.put("/lib/modules/6.12.1-amd64/modules.dep", "kernel/fs/overlayfs/overlay.ko.xz:\nkernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\n")
	}
	const release, newer = "6.12.1-amd64", "6.13.0-amd64"
	return []row{
		{"CgroupDriver", "systemd is not there", func(s scene) { s.remove("/run/systemd/system") },
			[]string{"[ERROR CgroupDriver] | containerd | systemd | SystemdCgroup = false | cgroup_manager = \"cgroupfs\" | CRI-O"}},
		{"CgroupDriver", "two managers", func(s scene) { s.Has.Runtime.CgroupDriver = "cgroupfs" },
			[]string{
				"[WARNING CgroupDriver] | containerd | cgroupfs | systemd | SystemdCgroup = true | cgroup_manager = \"systemd\" | CRI-O",
				"[NOTE CgroupDriver] | cgroupfs | containerd | systemd | cgroupDriver | KubeletConfiguration"}},
		{"CgroupDriver", "a flag that agrees", func(s scene) {
			s.node.Kubelet.CgroupDriver, s.node.KubeletExtraArgs = "cgroupfs", []config.Arg{{Name: "cgroup-driver", Value: "systemd"}}
		}, nil},
		{"CgroupDriver", "not told", func(s scene) { s.Has.Runtime.Version = "1.7.1" },
			[]string{"[SKIPPED CgroupDriver] | CRI | ContainerRuntimeVersion"}},
		{"KernelModules", "not loaded", loadable,
			[]string{"[WARNING KernelModules] | br_netfilter | " + bridge + " | `modprobe br_netfilter` | /etc/modules-load.d/k8s.conf"}},
		{"KernelModules", "missing", func(s scene) {
			loadable(s)
			s.node.KubeProxy.Mode = "nftables"
			s.mkdir("/sys/module/br_netfilter")
		},
			[]string{"[WARNING KernelModules] | nf_tables | kube-proxy | nftables | linux-modules-extra"}},
		{"KernelModules", "not to be told", func(s scene) { s.remove("/sys/module/overlay"); s.remove("/proc/config.gz") },
			[]string{"[NOTE KernelModules] | overlay, nft_compat, xt_comment"}},
		{"KernelModules", "an image of RHEL 10", func(s scene) { s.modular(release, "nf_tables") }, []string{
			"[WARNING KernelModules] | br_netfilter | linux-modules-extra-$(uname -r) | kernel-modules-extra-$(uname -r)",
			"[WARNING KernelModules] | nft_compat | ip_tables | kernel-modules-extra-$(uname -r)",
			"[WARNING KernelModules] | xt_comment | kernel-modules-extra-$(uname -r)",
		}},
		{"KernelModules", "legacy tables", func(s scene) {
			s.modular(release, "ip_tables", "xt_comment")
			s.mkdir("/sys/module/br_netfilter")
		}, nil},
		{"KernelModules", "an upgraded kernel before its restart", func(s scene) {
			s.modular(newer, "br_netfilter", "nft_compat", "xt_comment")
			s.mkdir("/sys/module/br_netfilter", "/sys/module/nft_compat")
		}, []string{"[WARNING KernelModules] | xt_comment | /lib/modules | `uname -r`"}},
		{"KernelModules", "a container with another kernel's modules", func(s scene) {
			s.modular(newer, "br_netfilter", "nft_compat", "xt_comment")
			s.put("/run/systemd/container", "lxc")
		}, []string{"[NOTE KernelModules] | br_netfilter, nft_compat, xt_comment"}},
		{"KernelModules", "built in, by what it shows", func(s scene) {
			gone("overlay", "br_netfilter", "nf_conntrack")(s)
			s.put("/proc/filesystems", "nodev\tsysfs\nnodev\toverlay\n\text4\n")
			s.put("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n")
			s.put("/proc/sys/net/netfilter/nf_conntrack_max", "65536\n")
		}, nil},
		{"KernelModules", "switched off", func(s scene) { s.put("/proc/sys/net/bridge/bridge-nf-call-iptables", "0\n") },
			[]string{"[WARNING KernelModules] | net.bridge.bridge-nf-call-iptables | \"0\" | `sysctl -w net.bridge.bridge-nf-call-iptables=1` | /etc/sysctl.d/k8s.conf"}},
	}
}

func diskRows() []row {
	slow := func(s scene) {
		s.Has.Syncs = slices.Concat(s.Has.Syncs[:98], []time.Duration{12 * time.Millisecond, time.Second})
	}
	return []row{
		{"EtcdDisk", "one outlier", func(s scene) { s.Has.Syncs[50] = time.Second }, nil},
		{"EtcdDisk", "slow", slow,
			[]string{"[WARNING EtcdDisk] | /var/lib | 12ms | 99th | 100 | etcd | 10ms | etcd.local.dataDir"}},
		{"EtcdDisk", "so slow that few fit", func(s scene) { s.Has.Syncs = []time.Duration{600 * time.Millisecond} },
			[]string{"[WARNING EtcdDisk] | /var/lib | 600ms | 99th | 1 | etcd | 10ms | etcd.local.dataDir"}},
		{"EtcdDisk", "failing", func(s scene) { s.Fail["SyncTimes"] = errors.New("measure the disk of /var/lib: input/output error") },
			[]string{"[WARNING EtcdDisk] | /var/lib | input/output error"}},
		{"EtcdDisk", "not root", func(s scene) { s.Has.UID, s.Fail["SyncTimes"] = 1000, errors.New("permission denied") },
			[]string{"[SKIPPED EtcdDisk] | /var/lib | root"}},
		{"EtcdDisk", "dry run", func(s scene) { s.Fail["SyncTimes"] = host.ErrNotInPlan },
			[]string{"[UNASKED EtcdDisk] | /var/lib"}},
		{"WritableFolders", "read-only", func(s scene) {
			s.Fail["ProbeWrite /etc"] = errors.Wrap(unix.EROFS, "write to /etc")
		}, []string{"[ERROR WritableFolders] | /etc | read-only file system"}},
		{"WritableFolders", "one of several", func(s scene) {
			s.mkdir("/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd")
			s.Fail["ProbeWrite /etc"], s.Fail["ProbeWrite /var/lib/etcd"] = unix.EIO, errors.Wrap(unix.EIO, "write to /var/lib/etcd")
		}, []string{"[ERROR WritableFolders] | /var/lib/etcd | input/output error"}},
		{"WritableFolders", "not root", func(s scene) { s.Has.UID = 1000 },
			[]string{"[SKIPPED WritableFolders] | root | IsPrivilegedUser"}},
		{"WritableFolders", "dry run", func(s scene) { s.Fail["ProbeWrite /etc"] = host.ErrNotInPlan },
			[]string{"[UNASKED WritableFolders] | directories"}},
	}
}

func spaceRows() []row {
	full := func(path string, free, total uint64) func(scene) {
		return func(s scene) {
			s.mkdir(path)
			s.Has.Space[path] = host.Space{Free: free, Total: total, FreeInodes: 900_000, TotalInodes: 1_000_000}
		}
	}
	const remedy = " | larger disk"
	return []row{
		{"DiskSpace-kubernetes", "full", full("/etc/kubernetes", 9<<20, 1<<30),
			[]string{"[ERROR DiskSpace-kubernetes] | /etc/kubernetes | 9 MiB free | 10 MiB" + remedy}},
		{"DiskSpace-kubelet", "evicting", full("/var/lib/kubelet", 9<<30, 100<<30),
			[]string{"[WARNING DiskSpace-kubelet] | /var/lib/kubelet | 9216 MiB free | 10 GiB | evictionHard nodefs.available 10%" + remedy}},
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
			s.Has.Space["/var/lib/kubelet"] = host.Space{Free: 90 << 30, Total: 100 << 30, FreeInodes: 40_000, TotalInodes: 1_000_000}
		}, []string{"[WARNING DiskSpace-kubelet] | /var/lib/kubelet | 40000 inodes | 50000 | evictionHard nodefs.inodesFree 5% | another disk"}},
		{"DiskSpace-runtime", "little", full("/var/lib/containerd", 1<<30, 4<<30),
			[]string{"[WARNING DiskSpace-runtime] | /var/lib/containerd | 1024 MiB free | 2048 MiB" + remedy}},
		{"DiskSpace-runtime", "not told", func(s scene) { s.Fail["ImageDir"] = errors.New("no answer") },
			[]string{"[SKIPPED DiskSpace-runtime] | CRI"}},
		{"DiskSpace-etcd", "no inodes", func(s scene) { s.Has.Space["/var/lib"] = host.Space{Free: 9 << 30, Total: 10 << 30, TotalInodes: 10} },
			[]string{"[ERROR DiskSpace-etcd] | /var/lib | etcd | 0 inodes | 5000 | another disk"}},
		{"DiskSpace-etcd", "btrfs counts no inodes", func(s scene) { s.Has.Space["/var/lib"] = host.Space{Free: 9 << 30, Total: 10 << 30} }, nil},
		{"DiskSpace-etcd", "not to be told", func(s scene) { s.Fail["Space"] = errors.New("statfs: input/output error") },
			[]string{"[WARNING DiskSpace-etcd] | input/output error | `df /var/lib`"}},
	}
}

func reachRows() []row {
	another := func(name string, mtu int, addrs ...string) func(scene) {
		return func(s scene) {
			i := host.Interface{Name: name, MTU: mtu}
			for _, a := range addrs {
				i.Addresses = append(i.Addresses, netip.MustParseAddr(a))
			}
			s.Has.Interfaces = append(s.Has.Interfaces, i)
		}
	}
	behind := func(s scene) { s.node.Cluster.ControlPlaneEndpoint = "api.example.org" }
	const second = "[ERROR ExistingCluster] | api.example.org:6443 | behind | " +
		"`slipway token create --print-join-command --control-plane`"
	return []row{
		{"ExistingCluster", "alive", func(s scene) { behind(s); s.Has.Answers["https://api.example.org:6443/version"] = "{}" }, []string{second}},
		{"ExistingCluster", "without anonymous requests", func(s scene) {
			behind(s)
			s.Fail["Fetch https://api.example.org:6443/version"] = &host.ProbeError{Status: 401}
		}, []string{second}},
		{"ExistingCluster", "a load balancer alone", func(s scene) {
			behind(s)
			s.Fail["Fetch https://api.example.org:6443/version"] = &host.ProbeError{Status: 503}
		}, nil},
		{"ExistingCluster", "nothing there", behind, nil},
		{"ExistingCluster", "this host is its control plane", func(s scene) {
			behind(s)
			s.Has.Answers["https://api.example.org:6443/version"] = "{}"
			s.put("/etc/kubernetes/manifests/kube-apiserver.yaml", "")
		}, nil},
		{"ExistingCluster", "this host has its data", func(s scene) {
			behind(s)
			s.Has.Answers["https://api.example.org:6443/version"] = "{}"
			s.mkdir("/var/lib/etcd/member")
		}, nil},
		{"ExistingCluster", "dry run", func(s scene) { behind(s); s.Fail["Fetch https://api.example.org:6443/version"] = host.ErrNotInPlan },
			[]string{"[UNASKED ExistingCluster] | api.example.org:6443"}},
		{"Hostname", "another host's address", func(s scene) { s.Has.Names["node-1"] = "192.0.2.99" },
			[]string{"[WARNING Hostname] | \"node-1\" | 192.0.2.99 | /etc/hosts | DNS"}},
		{"Hostname", "Debian's loopback address", func(s scene) { s.Has.Names["node-1"] = "127.0.1.1" }, nil},
		{"Hostname", "dry run", func(s scene) { s.Fail["LookupHost"] = host.ErrNotInPlan },
			[]string{"[UNASKED Hostname] | \"node-1\""}},
		{"ControlPlaneEndpoint", "unknown", func(s scene) { s.node.Cluster.ControlPlaneEndpoint = "api.example.org:6443" },
			[]string{"[ERROR ControlPlaneEndpoint] | \"api.example.org\" | no address | DNS | /etc/hosts | controlPlaneEndpoint"}},
		{"ControlPlaneEndpoint", "known", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint, s.Has.Names["api.example.org"] = "api.example.org", "192.0.2.99"
		}, nil},
		{"ControlPlaneEndpoint", "dry run", func(s scene) {
			s.node.Cluster.ControlPlaneEndpoint, s.Fail["LookupHost"] = "api.example.org", host.ErrNotInPlan
		}, []string{"[UNASKED ControlPlaneEndpoint] | \"api.example.org\""}},
		{"MTU", "small", func(s scene) { s.Has.Interfaces[0].MTU = 1200 },
			[]string{"[WARNING MTU] | eth0 | MTU 1200 | IPv6 | 1280 | 50 | `ip link set eth0 mtu 1500`"}},
		{"MTU", "the Pods' is larger", another("cni0", 9000),
			[]string{"[WARNING MTU] | cni0 | MTU 9000 | eth0 | 1500"}},
		{"MTU", "the node's is smaller", func(s scene) { s.Has.Interfaces[0].Addresses = nil; another("tun0", 1420, "192.0.2.10")(s) },
			[]string{"[WARNING MTU] | 192.0.2.10 | tun0 | MTU 1420 | eth0 | 1500"}},
		{"MTU", "jumbo frames besides", another("eth1", 9000, "198.51.100.1"), nil},
		{"MTU", "no way out", func(s scene) { s.Has.Interfaces[0].Default = false },
			[]string{"[SKIPPED MTU] | default route"}},
		{"MTU", "not to be told", func(s scene) { s.Fail["Interfaces"] = errors.New("no netlink") },
			[]string{"[WARNING MTU] | MTU | no netlink | `ip link`"}},
	}
}
