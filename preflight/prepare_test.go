// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"io/fs"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

const runtimeSocket = "unix:///run/containerd/containerd.sock"

// foreign is a runtime that the operator has installed and started.
var foreign = HostRuntime{Socket: runtimeSocket, Installed: true, Running: true}

// bare is a healthy host before its preparation.
func bare(t *testing.T) *fakeHost {
	h := healthy(t)
	h.Has.Runtime.APIVersion = "v1"
	return h
}

func TestPrepareNames(t *testing.T) {
	always := []string{"IsPrivilegedUser", "Systemd", "DefaultRoute", "SystemVerification", "CNI", "Firewalld", "SELinux", "WritableFolders", "Programs", "Sysctl", "KernelModules"}
	for name, test := range map[string]struct {
		runtime HostRuntime
		sizes   map[string]uint64
		more    []string
	}{
		"nothing there":   {},
		"runtime runs":    {runtime: foreign, more: []string{"CRI"}},
		"runtime stopped": {runtime: HostRuntime{Installed: true}},
		"our own runtime": {runtime: HostRuntime{Running: true}},
		"a bundle": {
			sizes: map[string]uint64{"/usr/local/bin": 1, "/opt/cni/bin": 2, "/var/lib/containerd": 3},
			more:  []string{"DiskSpace--opt-cni-bin", "DiskSpace--usr-local-bin", "DiskSpace--var-lib-containerd"},
		},
	} {
		got := names(Prepare(&config.Machine{}, Preparation{Runtime: test.runtime, Sizes: test.sizes}))
		if diff := cmp.Diff(slices.Concat(always, test.more), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := names(Prepare(&config.Machine{SkipPhases: []string{"kernel"}}, Preparation{})); slices.Contains(got, "KernelModules") {
		t.Errorf("without the phase kernel: %v", got)
	}
}

type prepareRow struct {
	check, name string
	make        func(h *fakeHost)
	want        []string
}

func prepareRows() []prepareRow {
	noRoute := func(h *fakeHost) { h.Has.Default = nil }
	return []prepareRow{
		{"IsPrivilegedUser", "another user", func(h *fakeHost) { h.Has.UID = 1000 },
			[]string{"[ERROR IsPrivilegedUser] | root | 1000 | sudo"}},
		{"Systemd", "another init", func(h *fakeHost) { h.remove("/run/systemd/system") },
			[]string{"[ERROR Systemd] | systemd"}},
		{"DefaultRoute", "only IPv6", func(h *fakeHost) { h.Has.Default = []netip.Addr{netip.MustParseAddr("2001:db8::1")} }, nil},
		{"DefaultRoute", "none", noRoute,
			[]string{"[ERROR DefaultRoute] | `ip route add default via ADDRESS` | nodeRegistration.kubeletExtraArgs | localAPIEndpoint.advertiseAddress | `ip route add SERVICE-SUBNET dev INTERFACE`"}},
		{"DefaultRoute", "not to be told", func(h *fakeHost) { noRoute(h); h.Fail["DefaultAddress"] = errors.New("no netlink") },
			[]string{"[WARNING DefaultRoute] | no netlink | `ip route`"}},
		{"SystemVerification", "kernel 4.18", func(h *fakeHost) { h.Has.Kernel = "4.18.0" },
			[]string{"[WARNING SystemVerification] | kernel 4.18.0 | kernel 5.4 | 5.10 | 5.15 | 6.0"}},
		{"CNI", "no network", func(h *fakeHost) { h.mkdir("/etc/cni/net.d"); h.put("/etc/cni/net.d/README", "") }, nil},
		{"CNI", "networks", func(h *fakeHost) {
			h.put("/etc/cni/net.d/10-flannel.conflist", "{}")
			h.put("/etc/cni/net.d/99-lo.conf", "{}")
			h.put("/etc/cni/net.d/old.conf.bak", "{}")
		}, []string{"[NOTE CNI] | /etc/cni/net.d | 10-flannel.conflist | 99-lo.conf"}},
		{"CNI", "not readable", func(h *fakeHost) { h.unreadable("/etc/cni/net.d") }, nil},
		{"Firewalld", "ufw", (*fakeHost).ufw, []string{"[WARNING Firewalld] | ufw | 6443/tcp | 2379-2380/tcp | 10250/tcp | 8472/udp"}},
		{"Sysctl", "a later file", func(h *fakeHost) {
			h.put("/etc/sysctl.d/99-hardening.conf", "net.ipv4.ip_forward = 0\nnet.ipv4.tcp_syncookies = 1\n")
			h.put("/usr/lib/sysctl.d/99-hardening.conf", "net.ipv4.ip_forward = 3\n")
			h.put("/etc/sysctl.d/10-early.conf", "net.ipv4.ip_forward = 0\n")
			h.put("/run/sysctl.d/99-same.conf", "net/ipv4/ip_forward=1\n")
		}, []string{"[WARNING Sysctl] | /etc/sysctl.d/99-hardening.conf | net.ipv4.ip_forward to 0 | /etc/sysctl.d/90-slipway.conf | to 1"}},
		{"WritableFolders", "a read-only /usr", func(h *fakeHost) {
			h.mkdir("/usr/local")
			h.Fail["ProbeWrite /usr/local"] = host.Explain("write to", "/usr/local", unix.EROFS)
		}, []string{"[ERROR WritableFolders] | /usr/local | read-only | bundle | Flatcar | systemd-sysext | --bundle"}},
		{"WritableFolders", "another fault below /usr", func(h *fakeHost) {
			h.mkdir("/usr/local/bin")
			h.Fail["ProbeWrite /usr/local/bin"] = unix.ENOSPC
		}, []string{"[ERROR WritableFolders] | no space | /usr/local/bin | free space"}},
		{"KernelModules", "an image of RHEL 10", func(h *fakeHost) { h.modular("6.12.1-amd64", "xt_comment") },
			[]string{"[ERROR KernelModules] | br_netfilter | linux-modules-extra-$(uname -r) | kernel-modules-extra-$(uname -r)"}},
		{"KernelModules", "to be loaded", func(h *fakeHost) { h.modular("6.12.1-amd64", "br_netfilter") }, nil},
		{"KernelModules", "an upgraded kernel before its restart", func(h *fakeHost) { h.modular("6.13.0-amd64", "br_netfilter") },
			[]string{"[ERROR KernelModules] | br_netfilter | /lib/modules | `uname -r`"}},
		{"KernelModules", "a container with another kernel's modules", func(h *fakeHost) {
			h.modular("6.13.0-amd64", "br_netfilter")
			h.put("/.dockerenv", "")
		}, nil},
		{"KernelModules", "not to be told", func(h *fakeHost) { h.remove("/sys/module"); h.remove("/proc/config.gz") }, nil},
		{"SELinux", "on", func(h *fakeHost) { h.Has.SELinux, h.Has.Programs["restorecon"] = true, "" }, nil},
		{"SELinux", "on, without its tools", func(h *fakeHost) { h.Has.SELinux = true },
			[]string{"[ERROR SELinux] | SELinux | restorecon | policycoreutils"}},
		{"DiskSpace--usr-local-bin", "just enough", func(h *fakeHost) { h.Has.Space["/"] = host.Space{Free: 200 << 20} }, nil},
		{"DiskSpace--usr-local-bin", "too little", func(h *fakeHost) { h.Has.Space["/"] = host.Space{Free: 200<<20 - 1} },
			[]string{"[ERROR DiskSpace--usr-local-bin] | / | bundle | 199 MiB free | 200 MiB"}},
		{"DiskSpace--usr-local-bin", "no inodes", func(h *fakeHost) { h.Has.Space["/"] = host.Space{Free: 1 << 40, TotalInodes: 9, FreeInodes: 8} },
			[]string{"[ERROR DiskSpace--usr-local-bin] | / | bundle | 8 inodes | 5000"}},
		{"DiskSpace--usr-local-bin", "not to be told", func(h *fakeHost) { h.Fail["Space"] = errors.New("no statfs") },
			[]string{"[WARNING DiskSpace--usr-local-bin] | / | no statfs | `df /`"}},
	}
}

func foreignRuntimeRows() []prepareRow {
	is := func(change func(r *host.RuntimeInfo)) func(*fakeHost) {
		return func(h *fakeHost) { change(h.Has.Runtime) }
	}
	return []prepareRow{
		{"CRI", "CRI-O", is(func(r *host.RuntimeInfo) { r.Name, r.Version = "cri-o", "1.33.0" }), nil},
		{"CRI", "no answer", func(h *fakeHost) {
			h.Fail["RuntimeInfo"] = errors.New("no socket unix:///run/containerd/containerd.sock")
		},
			[]string{"[ERROR CRI] | no socket | " + runtimeSocket + " | --cri-socket"}},
		{"CRI", "an old API", is(func(r *host.RuntimeInfo) { r.Version, r.APIVersion = "1.5.0", "v1alpha2" }),
			[]string{"[ERROR CRI] | containerd 1.5.0 | v1alpha2 | v1 | containerd 2.0 | CRI-O 1.28"}},
		{"CRI", "old containerd", is(func(r *host.RuntimeInfo) { r.Version = "1.7.24" }),
			[]string{"[WARNING CRI] | containerd 1.7.24 | 1.38 | containerd 2.0 | CRI-O 1.28"}},
		{"CRI", "old containerd with Debian's settings", is(func(r *host.RuntimeInfo) {
			r.Version, r.CgroupDriver, r.CNIPluginDirs = "1.7.24", "cgroupfs", []string{"/usr/lib/cni"}
		}),
			[]string{
				"[WARNING CRI] | containerd | cgroupfs | systemd | SystemdCgroup = true | cgroup_manager = \"systemd\" | CRI-O",
				"[WARNING CRI] | containerd 1.7.24 | 1.38 | containerd 2.0 | CRI-O 1.28",
				"[WARNING CRI] | containerd | /usr/lib/cni | bin_dir to /opt/cni/bin | bin_dirs | containerd 2.1",
			}},
		{"CRI", "systemd's driver without systemd", func(h *fakeHost) { h.remove("/run/systemd/system") },
			[]string{"[ERROR CRI] | containerd | systemd | SystemdCgroup = false | cgroup_manager = \"cgroupfs\" | CRI-O"}},
		{"CRI", "cgroupfs beside systemd", is(func(r *host.RuntimeInfo) { r.CgroupDriver = "cgroupfs" }),
			[]string{"[WARNING CRI] | containerd | cgroupfs | systemd | SystemdCgroup = true | cgroup_manager = \"systemd\" | CRI-O"}},
		{"CRI", "plugins elsewhere too", is(func(r *host.RuntimeInfo) { r.CNIPluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin"} }), nil},
		{"CRI", "plugins elsewhere", is(func(r *host.RuntimeInfo) { r.CNIPluginDirs = []string{"/usr/lib/cni", "/usr/libexec/cni"} }),
			[]string{"[WARNING CRI] | containerd | /usr/lib/cni | /usr/libexec/cni | /opt/cni/bin | bin_dirs | containerd 2.1"}},
		{"CRI", "two faults", is(func(r *host.RuntimeInfo) { r.CgroupDriver, r.CNIPluginDirs = "cgroupfs", []string{"/usr/lib/cni"} }),
			[]string{
				"[WARNING CRI] | containerd | cgroupfs | systemd | SystemdCgroup = true | cgroup_manager = \"systemd\" | CRI-O",
				"[WARNING CRI] | containerd | /usr/lib/cni | /opt/cni/bin | bin_dirs | containerd 2.1",
			}},
	}
}

func TestPrepare(t *testing.T) {
	checks := Prepare(&config.Machine{}, Preparation{
		Runtime: foreign, Sizes: map[string]uint64{"/usr/local/bin": 200 << 20}, Written: []string{"/usr/local/bin"},
		SysctlFile: "/etc/sysctl.d/90-slipway.conf", Parameters: map[string]string{"net/ipv4/ip_forward": "1"},
	})
	for _, r := range slices.Concat(prepareRows(), foreignRuntimeRows()) {
		t.Run(r.check+"/"+r.name, func(t *testing.T) {
			h := bare(t)
			r.make(h)
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == r.check })
			expect(t, checks[i].findings(t.Context(), h), r.want...)
		})
	}
}

// TestPrepareSpaceTogether: directories on one file system have to fit together.
func TestPrepareSpaceTogether(t *testing.T) {
	h := bare(t)
	h.Has.Space["/"] = host.Space{Free: 250 << 20}
	checks := Prepare(&config.Machine{}, Preparation{Sizes: map[string]uint64{"/usr/local/bin": 200 << 20, "/opt/cni/bin": 100 << 20}})
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "DiskSpace--opt-cni-bin" })
	expect(t, checks[i].findings(t.Context(), h), "[ERROR DiskSpace--opt-cni-bin] | 250 MiB | 300 MiB")
}

// A host with everything it needs passes without a word.
func TestPrepareHealthy(t *testing.T) {
	checks := Prepare(&config.Machine{}, Preparation{Runtime: foreign, Sizes: map[string]uint64{"/usr/local/bin": 1 << 20}})
	report := Run(t.Context(), checks, bare(t), nil)
	if found := slices.Concat(report[fault.Note], report[fault.Warning], report[fault.Error]); len(found) > 0 {
		t.Errorf("found %v", texts(found))
	}
}

func TestSameKubelet(t *testing.T) {
	for installed, want := range map[string][]string{
		"v1.37.2": nil,
		"v1.37.3": {"[ERROR KubeletVersion] | kubelet v1.37.3 | v1.37.2 | bundle of v1.37.3 | `slipway upgrade plan v1.37.2`"},
		"garbage": {"[ERROR KubeletVersion] | \"garbage\" | bundle"},
	} {
		h := bare(t)
		h.Has.Programs["kubelet"] = "Kubernetes " + installed
		expect(t, SameKubelet("v1.37.2").findings(t.Context(), h), want...)
	}
}

func TestBundledKubelet(t *testing.T) {
	for name, test := range map[string]struct {
		bundled, cluster string
		installed        string // empty: no kubelet
		unknown          error
		want             []string
	}{
		"newer patch":         {bundled: "v1.37.9", cluster: "v1.37.2", installed: "v1.37.2"},
		"older patch":         {bundled: "v1.37.0", cluster: "v1.37.2", installed: "v1.37.2"},
		"from three before":   {bundled: "v1.37.2", cluster: "v1.37.2", installed: "v1.34.0"},
		"none there":          {bundled: "v1.36.2", cluster: "v1.37.2"},
		"not to be told":      {bundled: "v1.36.2", cluster: "v1.37.2", installed: "garbage"},
		"oldest":              {bundled: "v1.34.0", cluster: "v1.37.2", installed: "v1.34.0"},
		"newer than cluster":  {"v1.37.2", "v1.36.4", "v1.36.4", nil, []string{"[ERROR KubeletVersion] | kubelet (v1.37.2) | newer | control plane (v1.36.4) | bundle of v1.36"}},
		"too old for cluster": {"v1.33.9", "v1.37.2", "v1.33.0", nil, []string{"[ERROR KubeletVersion] | kubelet (v1.33.9) | older | 1.34 | 1.37 | bundle of v1.37"}},
		"back": {"v1.36.4", "v1.37.2", "v1.37.0", nil,
			[]string{"[ERROR KubeletVersion] | kubelet (v1.36.4) | older | (v1.37.0) | bundle of v1.37"}},
		"no bundled version": {"latest", "v1.37.2", "v1.37.0", nil, []string{"[ERROR KubeletVersion] | bundle | \"latest\""}},
		"no cluster version": {"v1.37.2", "", "v1.37.0", nil, []string{"[ERROR KubeletVersion] | \"\" | ConfigMap kube-system/kubeadm-config"}},
		"only for root":      {"v1.37.2", "", "v1.37.0", errors.Wrap(fs.ErrPermission, "kubelet.conf"), []string{"[SKIPPED KubeletVersion] | root"}},
		"unknown": {"v1.37.2", "", "v1.37.0", fault.New("refused", "start it"),
			[]string{"[ERROR KubeletVersion] | cluster | refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := bare(t)
			delete(h.Has.Programs, "kubelet")
			if test.installed != "" {
				h.Has.Programs["kubelet"] = "Kubernetes " + test.installed
			}
			got := texts(BundledKubelet(test.bundled, test.cluster, test.unknown).findings(t.Context(), h))
			fact.List(t, got, test.want...)
		})
	}
}
