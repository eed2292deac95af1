// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/config"
)

// cgroupDriver holds the driver that the runtime names against this host and
// against the kubelet's settings. The kubelet takes the runtime's (KEP-4033).
// One that cannot name it is for ContainerRuntimeVersion.
func cgroupDriver(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, n.CRISocket)
		if err != nil || !tellsDriver(info) {
			return skip("the container runtime does not name its cgroup driver: see CRI and ContainerRuntimeVersion")
		}
		wanted := effectiveKubelet(n, h).cgroupDriver
		switch {
		case info.CgroupDriver == "systemd" && !exists(h, "/run/systemd/system"):
			return fault("%s uses the cgroup driver systemd, and systemd does not run this host, so that no container will start: set SystemdCgroup = false (containerd) or cgroup_manager = \"cgroupfs\" (CRI-O) in its configuration and restart it", info.Name)
		case wanted.value != info.CgroupDriver && wanted.from != kubeletDefault:
			return append(twoManagers(h, info.Name, info.CgroupDriver),
				note("the kubelet will use the cgroup driver %s, as %s says, and not %s (%s)", info.CgroupDriver, info.Name, wanted.value, wanted.from)...)
		}
		return twoManagers(h, info.Name, info.CgroupDriver)
	}
}

// twoManagers: on cgroup v2 systemd expects to be the only one that changes
// the tree:
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/#cgroup-drivers
func twoManagers(h View, runtime, driver string) []Finding {
	if driver == "cgroupfs" && exists(h, "/run/systemd/system") && exists(h, "/sys/fs/cgroup/cgroup.controllers") {
		return warn("%s uses the cgroup driver cgroupfs, while systemd manages the same cgroups, which makes a node under pressure unstable: set SystemdCgroup = true (containerd) or cgroup_manager = \"systemd\" (CRI-O) in its configuration and restart it", runtime)
	}
	return nil
}
