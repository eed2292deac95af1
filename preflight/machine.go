// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"strings"
)

// The minimum of a control plane node, from
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/
// The page asks for 2 GiB; firmware and kernel take a little of that.
const (
	minCPUs   = 2
	minMemory = 1700 << 20 // bytes
)

func privilegedUser(_ context.Context, h View) []Finding {
	if uid := h.EffectiveUID(); uid != 0 {
		return fail("this needs root, but runs as user %d", uid).remedy("run it with sudo")
	}
	return nil
}

func numCPU(_ context.Context, h View) []Finding {
	if n := h.NumCPU(); n < minCPUs {
		return fail("this host has %d CPU; a control plane needs at least %d", n, minCPUs).remedy("give the machine more CPUs")
	}
	return nil
}

func memory(_ context.Context, h View) []Finding {
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

func program(name, pkg string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		if _, err := h.LookPath(name); err != nil {
			return fail("the kubelet needs the program %s, which is not in PATH", name).remedy("install the package %s", pkg)
		}
		return nil
	}
}

// sysctlRemedy switches a kernel setting on, now and after a reboot.
const sysctlRemedy = "run `sysctl -w %[1]s=1`, and add %[1]s=1 to /etc/sysctl.d/k8s.conf"

// switchedOn checks that a kernel setting is 1.
func switchedOn(path, setting string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
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
