// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"strings"
)

// What a control plane node needs, by
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/
// The page asks for 2 GiB; a little less is what such a machine has left after
// its firmware and kernel.
const (
	minCPUs   = 2
	minMemory = 1700 << 20 // bytes
)

func privilegedUser(_ context.Context, h View) []Finding {
	if uid := h.EffectiveUID(); uid != 0 {
		return fault("this needs root, and runs as user %d: use sudo", uid)
	}
	return nil
}

func numCPU(_ context.Context, h View) []Finding {
	if n := h.NumCPU(); n < minCPUs {
		return fault("this host has %d CPU; a control plane needs at least %d: give the machine more", n, minCPUs)
	}
	return nil
}

func memory(_ context.Context, h View) []Finding {
	size, err := h.MemoryBytes()
	if err != nil {
		return warn("the size of the memory cannot be told: %v", err)
	}
	if size < minMemory {
		return fault("this host has %d MiB of memory; a control plane needs at least %d MiB: give the machine more", size>>20, minMemory>>20)
	}
	return nil
}

func program(name, pkg string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		if _, err := h.LookPath(name); err != nil {
			return fault("the program %s is not in PATH, and the kubelet needs it: install the package %s", name, pkg)
		}
		return nil
	}
}

// switchedOn wants a kernel setting to be 1.
func switchedOn(path, setting string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		text, err := h.ReadFile(path)
		if err != nil {
			return fault("%s cannot be read (%v): does this kernel have the protocol?", path, err)
		}
		if value := strings.TrimSpace(string(text)); value != "1" {
			return fault("%s is %q, so this host does not forward packets of Pods: run `sysctl -w %s=1`, and keep it in /etc/sysctl.d/k8s.conf",
				path, value, setting)
		}
		return nil
	}
}
