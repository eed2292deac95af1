// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// cgroups checks which version of cgroups is mounted, and whether it has the kubelet's controllers.
func cgroups(ctx context.Context, n *config.Node, h View) []fault.Finding {
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
		versionOne(ctx, n, h))
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
func versionOne(ctx context.Context, n *config.Node, h View) []fault.Finding {
	const remedy = "switch to cgroup v2 (kernel argument systemd.unified_cgroup_hierarchy=1)"
	have, err := InstalledKubelet(ctx, h)
	old := err == nil && have.LessThan(version.MustParseGeneric("1.35"))
	if old || !effectiveKubelet(n, h).failCgroupV1.value {
		return warn("this host uses cgroup v1, which Kubernetes will stop supporting").remedy(remedy)
	}
	return fail("this host uses cgroup v1, on which the kubelet does not start since Kubernetes 1.35").
		remedy(remedy + "; for the time being, you can set failCgroupV1: false in a KubeletConfiguration instead")
}

// driverRemedy names the runtime's setting, with its value for containerd and for CRI-O.
const driverRemedy = "set SystemdCgroup = %t (containerd) or cgroup_manager = %q (CRI-O) in its configuration and restart it"

// cgroupDriver compares the runtime's driver with this host and the kubelet's settings. The kubelet uses the runtime's driver, if
// it's reported (KEP-4033); ContainerRuntimeVersion checks runtimes that can't report it.
func cgroupDriver(ctx context.Context, h View, n *config.Node) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, n.CRISocket)
	if err != nil || !reportsDriver(info) {
		return skip("the container runtime does not report its cgroup driver; see CRI and ContainerRuntimeVersion")
	}
	wanted := effectiveKubelet(n, h).cgroupDriver
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
