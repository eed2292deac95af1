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
)

func system(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		return slices.Concat(kernelRelease(h), kernelConfig(h), cgroups(ctx, n, h))
	}
}

// kernelRelease knows the long-term kernels that Kubernetes supports:
// https://kubernetes.io/docs/reference/node/kernel-version-requirements/
func kernelRelease(h View) []Finding {
	release, err := h.KernelRelease()
	if err != nil {
		return warn("cannot read the kernel's release: %v", err).remedy(supportedKernels)
	}
	number, _, _ := strings.Cut(release, "-")
	v, err := version.ParseGeneric(number)
	if err != nil {
		return warn("the kernel's release %q does not begin with a version", release).remedy(supportedKernels)
	}
	longTerm := v.Major() == 5 && slices.Contains([]uint{4, 10, 15}, v.Minor())
	if v.Major() < 6 && !longTerm {
		return warn("Kubernetes does not support the kernel %s", release).remedy(supportedKernels)
	}
	return nil
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

func kernelConfig(h View) []Finding {
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
