// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

func system(ctx context.Context, h View, m *config.Machine) []fault.Finding {
	return slices.Concat(kernelRelease(h), kernelConfig(h), cgroups(ctx, m, h))
}

// kernelRelease knows the long-term kernels that Kubernetes supports. Vendors such as Red Hat and SUSE maintain other kernels, between
// them, for years:
// https://kubernetes.io/docs/reference/node/kernel-version-requirements/
func kernelRelease(h View) []fault.Finding {
	release, err := h.KernelRelease()
	if err != nil {
		return warn("cannot read the kernel's release: %v", err).remedy(supportedKernels)
	}
	number, _, _ := strings.Cut(release, "-")
	v, err := version.ParseGeneric(number)
	if err != nil {
		return warn("the kernel's release %q does not begin with a version", release).remedy(supportedKernels)
	}
	switch {
	case v.Major() > 5, v.Major() == 5 && slices.Contains([]uint{4, 10, 15}, v.Minor()):
		return nil
	case v.AtLeast(version.MustParseGeneric("5.4")):
		return note("the kernel %s is not a long-term kernel of kernel.org; vendors such as Red Hat and SUSE maintain such kernels themselves", release)
	}
	return warn("Kubernetes does not support the kernel %s", release).remedy(supportedKernels)
}

const supportedKernels = "use kernel 5.4, 5.10, 5.15, or 6.0 or later"

// requiredOptions are the kernel options for containers, their limits and their network; a bar separates alternatives.
func requiredOptions() []string {
	return []string{
		"NAMESPACES", "NET_NS", "PID_NS", "IPC_NS", "UTS_NS", "CPUSETS", "MEMCG", "INET", "EXT4_FS", "PROC_FS",
		"NETFILTER_XT_TARGET_REDIRECT|IP_NF_TARGET_REDIRECT", "NETFILTER_XT_MATCH_COMMENT", "FAIR_GROUP_SCHED",
		"CGROUPS", "CGROUP_CPUACCT", "CGROUP_DEVICE", "CGROUP_FREEZER", "CGROUP_PIDS", "CGROUP_SCHED",
	}
}

func kernelConfig(h View) []fault.Finding {
	text, found := readKernelConfig(h)
	if !found {
		return note("did not find the kernel's configuration, so its options are not checked")
	}
	on := map[string]bool{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value == "y" || value == "m" {
			on[strings.TrimPrefix(name, "CONFIG_")] = true
		}
	}
	var missing []string
	for _, o := range requiredOptions() {
		if !slices.ContainsFunc(strings.Split(o, "|"), func(name string) bool { return on[name] }) {
			missing = append(missing, "CONFIG_"+strings.ReplaceAll(o, "|", " or CONFIG_"))
		}
	}
	if len(missing) > 0 {
		return fail("the kernel lacks %s", strings.Join(missing, ", ")).remedy("use a kernel that has these options")
	}
	return nil
}

// readKernelConfig looks where distributions keep the running kernel's configuration. A damaged file counts as missing.
func readKernelConfig(h View) (text string, found bool) {
	if packed, err := h.ReadFile("/proc/config.gz"); err == nil {
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err == nil {
			if plain, err := io.ReadAll(r); err == nil {
				return string(plain), true
			}
		}
	}
	release, err := h.KernelRelease()
	if err != nil {
		return "", false
	}
	for _, path := range []string{"/boot/config-" + release, "/lib/modules/" + release + "/config"} {
		if plain, err := h.ReadFile(path); err == nil {
			return string(plain), true
		}
	}
	return "", false
}

// The minimum of a control plane node, from
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/
// The page asks for 2 GiB; firmware and kernel take a little of that.
const (
	minCPUs   = 2
	minMemory = 1700 << 20 // bytes
)

func privilegedUser(_ context.Context, h View) []fault.Finding {
	if uid := h.EffectiveUID(); uid != 0 {
		return fail("this needs root, but runs as user %d", uid).remedy("run it with sudo")
	}
	return nil
}

func numCPU(_ context.Context, h View) []fault.Finding {
	if n := h.NumCPU(); n < minCPUs {
		return fail("this host has %d CPU; a control plane needs at least %d", n, minCPUs).remedy("give the machine more CPUs")
	}
	return nil
}

func memory(_ context.Context, h View) []fault.Finding {
	size, err := h.MemoryBytes()
	if err != nil {
		return warn("cannot read the size of the memory: %v", err).
			remedy("make sure that this host has at least %d MiB", minMemory>>20)
	}
	if size < minMemory {
		return fail("this host has %d MiB of memory; a control plane needs at least %d MiB", size>>20, minMemory>>20).
			remedy("give the machine more memory")
	}
	return nil
}

func program(name, pkg string) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		if _, err := h.LookPath(name); err != nil {
			return fail("the kubelet needs the program %s, which is not in PATH", name).remedy("install the package %s", pkg)
		}
		return nil
	}
}

// sysctlRemedy switches a kernel setting on, now and after a reboot.
const sysctlRemedy = "run `sysctl -w %[1]s=1`, and add %[1]s=1 to /etc/sysctl.d/k8s.conf"

func switchedOn(path, setting string) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		text, err := h.ReadFile(path)
		if err != nil {
			return fail("cannot read %s: %v", path, err).remedy("use a kernel that supports this protocol")
		}
		if value := strings.TrimSpace(string(text)); value != "1" {
			return fail("%s is %q, so this host does not forward packets of Pods", path, value).remedy(sysctlRemedy, setting)
		}
		return nil
	}
}

// swap is an error exactly if the kubelet, as it will be configured, refuses to start on a host with swap.
func swap(_ context.Context, h View, m *config.Machine) []fault.Finding {
	areas, err := h.Swap()
	if err != nil {
		return warn("cannot check whether swap is on: %v", err).remedy("check it with `swapon --show`")
	}
	if len(areas) == 0 {
		return nil
	}
	where, refuses := strings.Join(areas, ", "), effectiveKubelet(m, h).failSwapOn
	if !refuses.value {
		return warn("swap is on (%s), and the kubelet is configured to run with it (%s)", where, refuses.from).
			remedy("if Pods are meant to use swap, set memorySwap in a KubeletConfiguration (cgroup v2 only): https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/")
	}
	return fail("swap is on (%s), and the kubelet does not start with it (failSwapOn is true: %s)", where, refuses.from).
		remedy("turn it off, now and at boot, with `slipway host prepare phase swap`, or set failSwapOn: false in a KubeletConfiguration")
}

// SwapTolerance returns the setting with which the kubelet, as it will be configured, starts on a host with swap; empty if it doesn't.
func SwapTolerance(m *config.Machine, h View) string {
	refuses := effectiveKubelet(m, h).failSwapOn
	if refuses.value {
		return ""
	}
	return refuses.from
}

// cgroups checks which version of cgroups is mounted, and whether it has the kubelet's controllers.
func cgroups(ctx context.Context, m *config.Machine, h View) []fault.Finding {
	if text, err := h.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return controllers(strings.Fields(string(text)), []string{"cpu", "cpuset", "memory", "pids"}, []string{"hugetlb", "io"})
	}
	text, err := h.ReadFile("/proc/cgroups")
	if err != nil {
		return fail("this host has no cgroups: %v", err).remedy("mount cgroup v2 on /sys/fs/cgroup")
	}
	have := enabledV1(string(text))
	return slices.Concat(
		controllers(have, []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}, []string{"blkio", "hugetlb"}),
		versionOne(ctx, m, h))
}

// enabledV1 reads the table of proc(5): name, hierarchy, number, enabled.
func enabledV1(table string) []string {
	var names []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "1" {
			names = append(names, f[0])
		}
	}
	return names
}

func controllers(have, required, optional []string) []fault.Finding {
	var found []fault.Finding
	if missing := without(optional, have); len(missing) > 0 {
		found = warn("missing cgroup controllers: %s; Pods' limits on these resources will not be enforced", strings.Join(missing, ", ")).
			remedy("enable them in the kernel if you need such limits")
	}
	if missing := without(required, have); len(missing) > 0 {
		found = append(found, fail("missing cgroup controllers: %s; the kubelet needs them", strings.Join(missing, ", ")).
			remedy("enable them in the kernel, for example with the argument cgroup_enable=memory")...)
	}
	return found
}

// versionOne reports cgroup v1. From 1.35 on, the kubelet doesn't start on it unless it's configured to (KEP-5573).
func versionOne(ctx context.Context, m *config.Machine, h View) []fault.Finding {
	const remedy = "switch to cgroup v2 (kernel argument systemd.unified_cgroup_hierarchy=1)"
	have, err := InstalledKubelet(ctx, h)
	old := err == nil && have.LessThan(version.MustParseGeneric("1.35"))
	if old || !effectiveKubelet(m, h).failCgroupV1.value {
		return warn("this host uses cgroup v1, which Kubernetes will stop supporting").remedy(remedy)
	}
	return fail("this host uses cgroup v1, on which the kubelet does not start since Kubernetes 1.35").
		remedy(remedy + "; for the time being, you can set failCgroupV1: false in a KubeletConfiguration instead")
}

// driverRemedy names the runtime's setting, with its value for containerd and for CRI-O.
const driverRemedy = "set SystemdCgroup = %t (containerd) or cgroup_manager = %q (CRI-O) in its configuration and restart it"

// cgroupDriver compares the runtime's driver with this host and the kubelet's settings. The kubelet uses the runtime's driver, if
// it's reported (KEP-4033); ContainerRuntimeVersion checks runtimes that can't report it.
func cgroupDriver(ctx context.Context, h View, m *config.Machine) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, m.CRISocket)
	if err != nil || !reportsDriver(info) {
		return skip("the container runtime does not report its cgroup driver; see CRI and ContainerRuntimeVersion")
	}
	wanted := effectiveKubelet(m, h).cgroupDriver
	switch {
	case info.CgroupDriver == "systemd" && !exists(h, "/run/systemd/system"):
		return fail("%s uses the cgroup driver systemd, but this host does not run systemd, so no container can start", info.Name).
			remedy(driverRemedy, false, "cgroupfs")
	case wanted.value != info.CgroupDriver && wanted.from != kubeletDefault:
		return append(twoManagers(h, info.Name, info.CgroupDriver),
			note("the kubelet will use the cgroup driver %s of %s instead of %s (%s)", info.CgroupDriver, info.Name, wanted.value, wanted.from)...)
	}
	return twoManagers(h, info.Name, info.CgroupDriver)
}

// twoManagers warns of a driver that competes with systemd: on cgroup v2, systemd expects to be the tree's only manager:
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers
func twoManagers(h View, runtime, driver string) []fault.Finding {
	if driver == "cgroupfs" && exists(h, "/run/systemd/system") && exists(h, "/sys/fs/cgroup/cgroup.controllers") {
		return warn("%s uses the cgroup driver cgroupfs while systemd manages the same cgroups, which makes a node unstable under resource pressure", runtime).
			remedy(driverRemedy, true, "systemd")
	}
	return nil
}
