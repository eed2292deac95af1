// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
)

// cgroups looks at which version of them is mounted and whether the
// controllers are there that the kubelet uses.
func cgroups(ctx context.Context, n *config.Node, h View) []Finding {
	if text, err := h.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return controllers(strings.Fields(string(text)), []string{"cpu", "cpuset", "memory", "pids"}, []string{"hugetlb", "io"})
	}
	text, err := h.ReadFile("/proc/cgroups")
	if err != nil {
		return fault("this host has no cgroups (%v): mount cgroup v2 on /sys/fs/cgroup", err)
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

func controllers(have, required, optional []string) []Finding {
	var found []Finding
	if missing := without(optional, have); len(missing) > 0 {
		found = warn("the cgroup controllers %s are missing: limits of Pods on those will not hold", strings.Join(missing, ", "))
	}
	if missing := without(required, have); len(missing) > 0 {
		found = append(found, fault("the cgroup controllers %s are missing, and the kubelet needs them: switch them on, perhaps with a kernel argument such as cgroup_enable=memory", strings.Join(missing, ", "))...)
	}
	return found
}

// versionOne: from 1.35 on the kubelet does not start on cgroup v1 unless it is
// told to (KEP-5573).
func versionOne(ctx context.Context, n *config.Node, h View) []Finding {
	const mend = "switch to cgroup v2 (kernel argument systemd.unified_cgroup_hierarchy=1)"
	const warning = "this host uses cgroup v1, which Kubernetes will cease to support: %s"
	if !effectiveKubelet(n, h).failCgroupV1.value {
		return warn(warning, mend)
	}
	if have, err := installedKubelet(ctx, h); err == nil && have.LessThan(version.MustParseGeneric("1.35")) {
		return warn(warning, mend)
	}
	return fault("this host uses cgroup v1, on which a kubelet from 1.35 on does not start: %s; or, as long as that lasts, set failCgroupV1: false in a KubeletConfiguration", mend)
}
