// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

// fakeHost is a stage's host that passes every check when it's healthy.
type fakeHost struct {
	*stage.Host
	t *testing.T
}

func healthy(t *testing.T) *fakeHost {
	t.Helper()
	h := &fakeHost{stage.New(t), t}
	address := netip.MustParseAddr("192.0.2.10")
	h.Has.Units = map[string]host.UnitState{"kubelet.service": {LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}}
	h.Has.Runtime = &host.RuntimeInfo{Name: "containerd", Version: "v2.2.0", Ready: true, CgroupDriver: "systemd", SandboxImage: "registry.k8s.io/pause:3.10.2"}
	h.Has.Memory = 2 << 30
	h.Has.Programs = map[string]string{"losetup": "", "mount": "", "cp": "", "kubelet": "Kubernetes v1.37.2"}
	h.Has.Default = []netip.Addr{address}
	h.Has.Names, h.Has.Answers = map[string]string{"node-1": "192.0.2.10"}, map[string]string{}
	h.Has.Syncs = slices.Repeat([]time.Duration{time.Millisecond}, 100)
	own := []netip.Addr{address, netip.MustParseAddr("192.0.2.21")}
	h.Has.Interfaces[0].Addresses, h.Has.Addresses = own, own
	h.Has.Time = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h.put("/proc/sys/net/ipv4/ip_forward", "1\n")
	h.put("/etc/resolv.conf", "nameserver 192.0.2.1\n")
	h.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n")
	h.put("/proc/config.gz", healthyKernel())
	h.mkdir("/etc", "/run/systemd/system", "/var/lib", "/sys/module/overlay", "/sys/module/br_netfilter", "/sys/module/nf_conntrack")
	return h
}

var healthyKernel = sync.OnceValue(func() string { return gzipped(kernelOptions()) })

func kernelOptions() string {
	var b strings.Builder
	b.WriteString("# CONFIG_AUFS_FS is not set\nCONFIG_NFT_COMPAT=y\nCONFIG_VXLAN=y\n")
	for _, o := range requiredOptions() {
		first, _, _ := strings.Cut(o, "|")
		fmt.Fprintf(&b, "CONFIG_%s=y\n", first)
	}
	return b.String()
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// modular gives the host a kernel with modules instead of built-in options, without br_netfilter, and installs modules of a release.
func (h *fakeHost) modular(release string, installed ...string) {
	h.t.Helper()
	h.remove("/sys/module/br_netfilter")
	options := strings.ReplaceAll(kernelOptions(), "=y", "=m") + "CONFIG_BRIDGE_NETFILTER=m\nCONFIG_IP_NF_IPTABLES=m\n"
	h.put("/proc/config.gz", gzipped(options))
	list := ""
	for _, name := range installed {
		list += "kernel/net/" + name + ".ko.xz:\n"
	}
	h.put("/lib/modules/"+release+"/modules.dep", list)
}

func (h *fakeHost) put(path, text string) {
	h.t.Helper()
	fixture.Put(h.t, h.Root, path, text)
}

func (h *fakeHost) mkdir(paths ...string) {
	h.t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Join(h.Root, path), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *fakeHost) remove(path string) {
	h.t.Helper()
	if err := os.RemoveAll(filepath.Join(h.Root, path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fakeHost) unreadable(path string) {
	err := &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	h.Fail["ReadFile "+path], h.Fail["ReadDir "+path] = err, err
}

// controlPlaneNode is the node of `init --pod-network-cidr 10.244.0.0/16`.
func controlPlaneNode() *config.Node {
	n := &config.Node{
		Machine:          config.Machine{CRISocket: "unix:///run/containerd/containerd.sock", Paths: paths()},
		ControlPlane:     true,
		Name:             "node-1",
		AdvertiseAddress: netip.MustParseAddr("192.0.2.10"),
		BindPort:         6443,
		ImagePullPolicy:  "IfNotPresent",
		ImagePullSerial:  true,
	}
	n.Cluster.KubernetesVersion = "v1.37.2"
	n.Cluster.Networking.ServiceSubnet = "10.96.0.0/12"
	n.Cluster.Networking.PodSubnet = "10.244.0.0/16"
	n.Cluster.Etcd.Local = &config.LocalEtcd{DataDir: "/var/lib/etcd"}
	n.Kubelet.CgroupDriver = "systemd"
	return n
}

func paths() config.Paths {
	return config.Paths{
		Kubernetes: "/etc/kubernetes", Manifests: "/etc/kubernetes/manifests", PKI: "/etc/kubernetes/pki", Kubeconfigs: "/etc/kubernetes",
		Kubelet: "/var/lib/kubelet",
	}
}

// manifest is a static Pod of the reference, as an earlier run would leave it.
func manifest(t *testing.T, component string) string {
	t.Helper()
	data, err := os.ReadFile("../testdata/golden/node/default/files/kubernetes/manifests/" + component + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
