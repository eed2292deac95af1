// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const runtimeSocket = "unix:///run/containerd/containerd.sock"

// foreign is a runtime that the operator has installed and started.
var foreign = HostRuntime{Socket: runtimeSocket, Installed: true, Running: true}

// bare is a healthy host that is not prepared.
func bare() *fakeHost {
	h := healthy()
	h.runtime.APIVersion = "v1"
	return h
}

func TestPrepareNames(t *testing.T) {
	always := []string{"IsPrivilegedUser", "Systemd", "DefaultRoute", "SystemVerification", "CNI", "Firewalld", "SELinux", "Sysctl"}
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
		got := names(Prepare(&config.Node{}, Preparation{Runtime: test.runtime, Sizes: test.sizes}))
		if diff := cmp.Diff(slices.Concat(always, test.more), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

type prepareRow struct {
	check, name string
	make        func(h *fakeHost)
	want        []string
}

func prepareRows() []prepareRow {
	noRoute := func(h *fakeHost) { h.addresses = nil }
	return []prepareRow{
		{"IsPrivilegedUser", "another user", func(h *fakeHost) { h.uid = 1000 },
			[]string{"[ERROR IsPrivilegedUser]: this needs root, but runs as user 1000\n  run it with sudo"}},
		{"Systemd", "another init", func(h *fakeHost) { delete(h.files, "run/systemd/system") },
			[]string{"[ERROR Systemd]: systemd is not this host's init, and nothing else can run the kubelet and the container runtime here\n  use a host that runs systemd"}},
		{"DefaultRoute", "only IPv6", func(h *fakeHost) { h.addresses = []netip.Addr{netip.MustParseAddr("2001:db8::1")} }, nil},
		{"DefaultRoute", "none", noRoute,
			[]string{"[ERROR DefaultRoute]: this host has no default route, by which the kubelet and the API server find the node's address\n  add one, even to a gateway that is not there: `ip route add default via ADDRESS`; or set nodeRegistration.kubeletExtraArgs node-ip and localAPIEndpoint.advertiseAddress in the configuration for init or join, and give Services a route of their own: `ip route add SERVICE-SUBNET dev INTERFACE`"}},
		{"DefaultRoute", "not to be told", func(h *fakeHost) { noRoute(h); h.unknown["default route"] = errors.New("no netlink") },
			[]string{"[WARNING DefaultRoute]: cannot read this host's default route: no netlink\n  check it with `ip route`"}},
		{"SystemVerification", "kernel 4.18", func(h *fakeHost) { h.kernel = "4.18.0" },
			[]string{"[WARNING SystemVerification]: Kubernetes does not support the kernel 4.18.0\n  use kernel 5.4, 5.10, 5.15, or 6.0 or later"}},
		{"CNI", "no network", func(h *fakeHost) { h.mkdir("/etc/cni/net.d"); h.put("/etc/cni/net.d/README", "") }, nil},
		{"CNI", "networks", func(h *fakeHost) {
			h.put("/etc/cni/net.d/10-flannel.conflist", "{}")
			h.put("/etc/cni/net.d/99-lo.conf", "{}")
			h.put("/etc/cni/net.d/old.conf.bak", "{}")
		}, []string{"/etc/cni/net.d configures a Pod network already, and stays as it is: 10-flannel.conflist, 99-lo.conf"}},
		{"CNI", "not readable", func(h *fakeHost) { h.unreadable = map[string]bool{"/etc/cni/net.d": true} }, nil},
		{"Firewalld", "active", func(h *fakeHost) {
			h.units["firewalld.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active"}
		}, []string{"[WARNING Firewalld]: firewalld is active, and other nodes must be able to reach TCP ports 6443 and 10250 of this host\n  open them with `firewall-cmd --permanent --add-port=6443/tcp --add-port=10250/tcp && firewall-cmd --reload`"}},
		{"Firewalld", "ufw", func(h *fakeHost) { h.put("/etc/ufw/ufw.conf", "# ufw\nENABLED=yes\n") },
			[]string{"[WARNING Firewalld]: ufw is active, and other nodes must be able to reach TCP ports 6443 and 10250 of this host\n  open them with `ufw allow 6443/tcp && ufw allow 10250/tcp`"}},
		{"Firewalld", "ufw is off", func(h *fakeHost) { h.put("/etc/ufw/ufw.conf", "ENABLED=no\n") }, nil},
		{"Sysctl", "a later file", func(h *fakeHost) {
			h.put("/etc/sysctl.d/99-hardening.conf", "net.ipv4.ip_forward = 0\nnet.ipv4.tcp_syncookies = 1\n")
			h.put("/usr/lib/sysctl.d/99-hardening.conf", "net.ipv4.ip_forward = 3\n")
			h.put("/etc/sysctl.d/10-early.conf", "net.ipv4.ip_forward = 0\n")
			h.put("/run/sysctl.d/99-same.conf", "net/ipv4/ip_forward=1\n")
		}, []string{"[WARNING Sysctl]: /etc/sysctl.d/99-hardening.conf sets net.ipv4.ip_forward to 0 at each boot, after /etc/sysctl.d/90-slipway.conf has set it to 1\n  change it there, unless it is meant to win"}},
		{"SELinux", "on", func(h *fakeHost) { h.selinux, h.programs["restorecon"] = true, "" }, nil},
		{"SELinux", "on, without its tools", func(h *fakeHost) { h.selinux = true },
			[]string{"[ERROR SELinux]: SELinux is on, and restorecon is not there to give files their contexts\n  install policycoreutils"}},
		{"DiskSpace--usr-local-bin", "just enough", func(h *fakeHost) { h.space["/"] = host.Space{Free: 200 << 20} }, nil},
		{"DiskSpace--usr-local-bin", "too little", func(h *fakeHost) { h.space["/"] = host.Space{Free: 200<<20 - 1} },
			[]string{"[ERROR DiskSpace--usr-local-bin]: the file system of /, for the bundle, has 199 MiB free; at least 200 MiB are needed\n  free some space, or mount a larger disk there"}},
		{"DiskSpace--usr-local-bin", "no inodes", func(h *fakeHost) { h.space["/"] = host.Space{Free: 1 << 40, TotalInodes: 9, FreeInodes: 8} },
			[]string{"[ERROR DiskSpace--usr-local-bin]: the file system of /, for the bundle, has 8 inodes free; at least 5000 are needed\n  remove small files, or mount another disk there"}},
		{"DiskSpace--usr-local-bin", "not to be told", func(h *fakeHost) { h.unknown["space"] = errors.New("no statfs") },
			[]string{"[WARNING DiskSpace--usr-local-bin]: cannot read the free space of /: no statfs\n  check it with `df /`"}},
	}
}

func foreignRuntimeRows() []prepareRow {
	is := func(change func(r *host.RuntimeInfo)) func(*fakeHost) {
		return func(h *fakeHost) { change(&h.runtime) }
	}
	return []prepareRow{
		{"CRI", "CRI-O", is(func(r *host.RuntimeInfo) { r.Name, r.Version = "cri-o", "1.33.0" }), nil},
		{"CRI", "no answer", func(h *fakeHost) { h.noRuntime = true },
			[]string{"[ERROR CRI]: the container runtime that this host has does not answer: no socket " + runtimeSocket + "\n  start it, or name its socket with --cri-socket"}},
		{"CRI", "an old API", is(func(r *host.RuntimeInfo) { r.Version, r.APIVersion = "1.5.0", "v1alpha2" }),
			[]string{"[ERROR CRI]: containerd 1.5.0 speaks version v1alpha2 of CRI, and the kubelet speaks v1\n  update the container runtime to containerd 2.0, CRI-O 1.28 or later"}},
		{"CRI", "old containerd", is(func(r *host.RuntimeInfo) { r.Version = "1.7.24" }),
			[]string{"[WARNING CRI]: containerd 1.7.24 cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that\n  update the container runtime to containerd 2.0, CRI-O 1.28 or later"}},
		{"CRI", "systemd's driver without systemd", func(h *fakeHost) { delete(h.files, "run/systemd/system") },
			[]string{"[ERROR CRI]: containerd uses the cgroup driver systemd, but this host does not run systemd\n  set SystemdCgroup = false (containerd) or cgroup_manager = \"cgroupfs\" (CRI-O) in its configuration and restart it"}},
		{"CRI", "cgroupfs beside systemd", is(func(r *host.RuntimeInfo) { r.CgroupDriver = "cgroupfs" }),
			[]string{"[WARNING CRI]: containerd uses the cgroup driver cgroupfs while systemd manages the same cgroups, which makes a node unstable under resource pressure\n  set SystemdCgroup = true (containerd) or cgroup_manager = \"systemd\" (CRI-O) in its configuration and restart it"}},
		{"CRI", "plugins elsewhere too", is(func(r *host.RuntimeInfo) { r.CNIPluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin"} }), nil},
		{"CRI", "plugins elsewhere", is(func(r *host.RuntimeInfo) { r.CNIPluginDirs = []string{"/usr/lib/cni", "/usr/libexec/cni"} }),
			[]string{"[WARNING CRI]: containerd looks for network plugins in /usr/lib/cni, /usr/libexec/cni, and most network add-ons install theirs to /opt/cni/bin\n  add /opt/cni/bin to bin_dirs in its configuration"}},
		{"CRI", "two faults", is(func(r *host.RuntimeInfo) { r.CgroupDriver, r.CNIPluginDirs = "cgroupfs", []string{"/usr/lib/cni"} }),
			[]string{
				"[WARNING CRI]: containerd uses the cgroup driver cgroupfs while systemd manages the same cgroups, which makes a node unstable under resource pressure\n  set SystemdCgroup = true (containerd) or cgroup_manager = \"systemd\" (CRI-O) in its configuration and restart it",
				"[WARNING CRI]: containerd looks for network plugins in /usr/lib/cni, and most network add-ons install theirs to /opt/cni/bin\n  add /opt/cni/bin to bin_dirs in its configuration",
			}},
	}
}

func TestPrepare(t *testing.T) {
	checks := Prepare(&config.Node{BindPort: config.DefaultBindPort}, Preparation{
		Runtime: foreign, Sizes: map[string]uint64{"/usr/local/bin": 200 << 20},
		SysctlFile: "/etc/sysctl.d/90-slipway.conf", Parameters: map[string]string{"net/ipv4/ip_forward": "1"},
	})
	for _, r := range slices.Concat(prepareRows(), foreignRuntimeRows()) {
		t.Run(r.check+"/"+r.name, func(t *testing.T) {
			h := bare()
			r.make(h)
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == r.check })
			if diff := cmp.Diff(r.want, texts(checks[i].findings(t.Context(), h))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A host that has all it needs passes without a word.
func TestPrepareHealthy(t *testing.T) {
	checks := Prepare(&config.Node{BindPort: config.DefaultBindPort}, Preparation{Runtime: foreign, Sizes: map[string]uint64{"/usr/local/bin": 1 << 20}})
	report := Run(t.Context(), checks, bare(), nil)
	if found := slices.Concat(report.Notes, report.Warnings, report.Errors); len(found) > 0 {
		t.Errorf("found %v", texts(found))
	}
}

func TestSameKubelet(t *testing.T) {
	for installed, want := range map[string][]string{
		"v1.37.2": nil,
		"v1.37.3": {"[ERROR KubeletVersion]: this host is a node with kubelet v1.37.3, the bundle is for v1.37.2, and `up` does not change the version of a node\n  use a bundle of v1.37.3; to upgrade, begin with `slipway upgrade plan v1.37.2`"},
		"garbage": {"[ERROR KubeletVersion]: this host is a node, and the version of its kubelet cannot be read: could not parse \"garbage\" as version\n  use the bundle that this node was made with"},
	} {
		h := bare()
		h.programs["kubelet"] = "Kubernetes " + installed
		if diff := cmp.Diff(want, texts(SameKubelet("v1.37.2").findings(t.Context(), h))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", installed, diff)
		}
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
		"newer than cluster":  {"v1.37.2", "v1.36.4", "v1.36.4", nil, []string{"[ERROR KubeletVersion]: the kubelet (v1.37.2) is newer than the control plane (v1.36.4), which is not supported\n  use a bundle of v1.36"}},
		"too old for cluster": {"v1.33.9", "v1.37.2", "v1.33.0", nil, []string{"[ERROR KubeletVersion]: the kubelet (v1.33.9) is older than 1.34, the oldest for a control plane of 1.37\n  use a bundle of v1.37"}},
		"back": {"v1.36.4", "v1.37.2", "v1.37.0", nil,
			[]string{"[ERROR KubeletVersion]: the bundle's kubelet (v1.36.4) is older than the one that is there (v1.37.0), and a kubelet cannot go back on a node\n  use a bundle of v1.37 or newer"}},
		"no bundled version": {"latest", "v1.37.2", "v1.37.0", nil, []string{"[ERROR KubeletVersion]: the bundle's version of Kubernetes \"latest\" is not a version\n  make the bundle again"}},
		"no cluster version": {"v1.37.2", "", "v1.37.0", nil, []string{"[ERROR KubeletVersion]: the cluster's version \"\" is not a version\n  check ConfigMap kube-system/kubeadm-config"}},
		"unknown": {"v1.37.2", "", "v1.37.0", fault.New("refused", "start it"),
			[]string{"[ERROR KubeletVersion]: this host is a node, and the version of its cluster is not known: refused\n  make sure that the API server can be reached; the kubelet must not become newer than it"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := bare()
			delete(h.programs, "kubelet")
			if test.installed != "" {
				h.programs["kubelet"] = "Kubernetes " + test.installed
			}
			got := texts(BundledKubelet(test.bundled, test.cluster, test.unknown).findings(t.Context(), h))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
