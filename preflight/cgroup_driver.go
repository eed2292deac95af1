// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/config"
)

// driverRemedy names the runtime's setting, with its value for containerd and for CRI-O.
const driverRemedy = "set SystemdCgroup = %t (containerd) or cgroup_manager = %q (CRI-O) in its configuration and restart it"

// cgroupDriver compares the runtime's driver with this host and the kubelet's settings. The kubelet uses the runtime's driver, if
// it's reported (KEP-4033); ContainerRuntimeVersion checks runtimes that can't report it.
func cgroupDriver(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
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
}

// twoManagers warns of a driver that competes with systemd: on cgroup v2, systemd expects to be the tree's only manager:
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers
func twoManagers(h View, runtime, driver string) []Finding {
	if driver == "cgroupfs" && exists(h, "/run/systemd/system") && exists(h, "/sys/fs/cgroup/cgroup.controllers") {
		return warn("%s uses the cgroup driver cgroupfs while systemd manages the same cgroups, which makes a node unstable under resource pressure", runtime).
			remedy(driverRemedy, true, "systemd")
	}
	return nil
}
