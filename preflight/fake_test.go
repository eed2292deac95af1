// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// fakeHost is a host made of values. What healthy returns passes every check.
type fakeHost struct {
	mu sync.Mutex // of listened

	host.Reader // nil: panics if a check asks for something else
	host.Remote

	files      fstest.MapFS
	unreadable map[string]bool
	units      map[string]host.UnitState
	noSystemd  bool
	noInit     bool
	runtime    host.RuntimeInfo
	noRuntime  bool
	uid, cpus  int
	listened   []string // what PortFree was asked for
	memory     uint64
	swap       []string
	kernel     string
	programs   map[string]string // and what they say to --version
	routes     []host.Route
	addresses  []netip.Addr // of the default routes
	selinux    bool
	held       map[int]host.Process // a zero Process: held by an unknown process
	names      map[string]string
	proxy      func(url string) (string, error)
	answers    map[string]string
	unknown    map[string]error // why a fact is unknown
	space      map[string]host.Space
	unwritable map[string]error
	syncs      []time.Duration
	interfaces []host.Interface
	now, date  time.Time // of this host, of the API server
}

func healthy() *fakeHost {
	h := &fakeHost{
		files: fstest.MapFS{},
		units: map[string]host.UnitState{
			"kubelet.service":   {LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"},
			"firewalld.service": {LoadState: "not-found", ActiveState: "inactive"},
		},
		runtime:   host.RuntimeInfo{Name: "containerd", Version: "v2.2.0", Ready: true, CgroupDriver: "systemd", SandboxImage: "registry.k8s.io/pause:3.10.2"},
		cpus:      2,
		memory:    2 << 30,
		kernel:    "6.12.1-amd64",
		programs:  map[string]string{"losetup": "", "mount": "", "cp": "", "kubelet": "Kubernetes v1.37.2"},
		routes:    []host.Route{{Destination: netip.MustParsePrefix("192.0.2.0/24"), Interface: "eth0"}},
		addresses: []netip.Addr{netip.MustParseAddr("192.0.2.10")},
		held:      map[int]host.Process{},
		names:     map[string]string{"node-1": "192.0.2.10"},
		proxy:     func(string) (string, error) { return "", nil },
		answers:   map[string]string{},
		unknown:   map[string]error{},
		space:     map[string]host.Space{},
		syncs:     slices.Repeat([]time.Duration{time.Millisecond}, 100),
		interfaces: []host.Interface{{Name: "eth0", MTU: 1500, Default: true, Addresses: []netip.Addr{
			netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.21")}}},
		now:  time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
		date: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
	}
	h.put("/proc/sys/net/ipv4/ip_forward", "1\n")
	h.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n")
	h.put("/proc/config.gz", gzipped(kernelOptions()))
	h.mkdir("/etc", "/run/systemd/system", "/var/lib", "/sys/module/overlay", "/sys/module/br_netfilter", "/sys/module/nf_conntrack")
	return h
}

func kernelOptions() string {
	var b strings.Builder
	b.WriteString("# CONFIG_AUFS_FS is not set\n")
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

func (h *fakeHost) put(path, text string) {
	h.files[path[1:]] = &fstest.MapFile{Data: []byte(text), Mode: 0o600}
}

func (h *fakeHost) mkdir(paths ...string) {
	for _, path := range paths {
		h.files[path[1:]] = &fstest.MapFile{Mode: 0o755 | fs.ModeDir}
	}
}

func (h *fakeHost) ReadFile(path string) ([]byte, error) {
	if h.unreadable[path] {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return fs.ReadFile(h.files, path[1:])
}

func (h *fakeHost) Lstat(path string) (fs.FileInfo, error) { return fs.Stat(h.files, path[1:]) }

func (h *fakeHost) ReadDir(path string) ([]fs.DirEntry, error) {
	if h.unreadable[path] {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return fs.ReadDir(h.files, path[1:])
}

func (h *fakeHost) Unit(_ context.Context, name string) (host.UnitState, error) {
	if h.noInit {
		return host.UnitState{}, host.ErrNoSystemd
	}
	if h.noSystemd {
		return host.UnitState{}, errors.New("no bus")
	}
	return h.units[name], nil
}

func (h *fakeHost) RuntimeInfo(_ context.Context, socket string) (host.RuntimeInfo, error) {
	if h.noRuntime {
		return host.RuntimeInfo{}, errors.Errorf("no socket %s", socket)
	}
	return h.runtime, nil
}

// Stat does not follow links.
func (h *fakeHost) Stat(path string) (fs.FileInfo, error) { return h.Lstat(path) }

// Space is plentiful unless the test says otherwise.
func (h *fakeHost) Space(path string) (host.Space, error) {
	if s, there := h.space[path]; there {
		return s, h.unknown["space"]
	}
	return host.Space{Free: 90 << 30, Total: 100 << 30, FreeInodes: 900_000, TotalInodes: 1_000_000}, h.unknown["space"]
}

func (h *fakeHost) ProbeWrite(dir string) error { return h.unwritable[dir] }

func (h *fakeHost) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return h.syncs, h.unknown["syncs"]
}

func (h *fakeHost) ImageDir(context.Context, string) (string, error) {
	return "/var/lib/containerd", h.unknown["images"]
}

func (h *fakeHost) Interfaces() ([]host.Interface, error) {
	return h.interfaces, h.unknown["interfaces"]
}

func (h *fakeHost) Now() time.Time { return h.now }

func (h *fakeHost) Date(context.Context, host.Probe) (time.Time, error) {
	return h.date, h.unknown["date"]
}

func (h *fakeHost) SELinux() bool { return h.selinux }

func (h *fakeHost) DefaultAddress(ipv6 bool) (netip.Addr, error) {
	for _, a := range h.addresses {
		if a.Is6() == ipv6 {
			return a, nil
		}
	}
	return netip.Addr{}, h.unknown["default route"]
}

func (h *fakeHost) EffectiveUID() int                 { return h.uid }
func (h *fakeHost) NumCPU() int                       { return h.cpus }
func (h *fakeHost) MemoryBytes() (uint64, error)      { return h.memory, h.unknown["memory"] }
func (h *fakeHost) Swap() ([]string, error)           { return h.swap, h.unknown["swap"] }
func (h *fakeHost) KernelRelease() (string, error)    { return h.kernel, h.unknown["kernel"] }
func (h *fakeHost) Routes() ([]host.Route, error)     { return h.routes, h.unknown["routes"] }
func (h *fakeHost) ProxyFor(u string) (string, error) { return h.proxy(u) }

func (h *fakeHost) LookPath(name string) (string, error) {
	if _, there := h.programs[name]; !there {
		return "", errors.Errorf("%s: not found", name)
	}
	return "/usr/bin/" + name, nil
}

func (h *fakeHost) ProgramVersion(_ context.Context, path string) (string, error) {
	return h.programs[strings.TrimPrefix(path, "/usr/bin/")], h.unknown["version"]
}

func (h *fakeHost) PortFree(address string, port int) error {
	h.mu.Lock() // checks run side by side
	h.listened = append(h.listened, net.JoinHostPort(address, strconv.Itoa(port)))
	h.mu.Unlock()
	if _, held := h.held[port]; held {
		return errors.Wrapf(syscall.EADDRINUSE, "port %d is in use", port)
	}
	return nil
}

func (h *fakeHost) PortHolder(port int) (host.Process, bool) {
	p := h.held[port]
	return p, p.PID != 0
}

func (h *fakeHost) LookupHost(_ context.Context, name string) ([]netip.Addr, error) {
	if err := h.unknown["names"]; err != nil {
		return nil, err
	}
	if text := h.names[name]; text != "" {
		return []netip.Addr{netip.MustParseAddr(text)}, nil
	}
	return nil, nil
}

func (h *fakeHost) Fetch(_ context.Context, p host.Probe) ([]byte, error) {
	if err := h.unknown["etcd"]; err != nil {
		return nil, err
	}
	if err := h.unknown[p.URL]; err != nil {
		return nil, err
	}
	answer, there := h.answers[p.URL]
	if !there {
		return nil, errors.Errorf("Get %q: connection refused", p.URL)
	}
	return []byte(answer), nil
}

// controlPlaneNode is the node of `init --pod-network-cidr 10.244.0.0/16`.
func controlPlaneNode() *config.Node {
	n := &config.Node{
		ControlPlane:     true,
		Name:             "node-1",
		CRISocket:        "unix:///run/containerd/containerd.sock",
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
	n.Paths = paths()
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
