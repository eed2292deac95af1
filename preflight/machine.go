// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/config"
)

// What a control plane node needs, by
// https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/
// The page asks for 2 GiB; a little less is what such a machine has left after
// its firmware and kernel.
const (
	minCPUs   = 2
	minMemory = 1700 << 20 // bytes
)

// lookupLimit is how long the host's resolver may take for one name. Slower is
// as bad as not at all, and init waits for it.
const lookupLimit = time.Second

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

// swap is about how the kubelet will be started: by default it ends at once
// on a host with swap.
func swap(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		areas, err := h.Swap()
		if err != nil {
			return warn("whether swap is on cannot be told: %v", err)
		}
		if len(areas) == 0 {
			return nil
		}
		where := strings.Join(areas, ", ")
		if toleratesSwap(n, h) {
			return warn("swap is on (%s), and the kubelet is told to run nevertheless; Pods get some only with cgroup v2 and memorySwap in its configuration: https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/", where)
		}
		return fault("swap is on (%s), and the kubelet would not start: turn it off with `swapoff -a` and take it out of /etc/fstab, or set failSwapOn: false in a KubeletConfiguration", where)
	}
}

// toleratesSwap is true where the configuration says so, and where a flag is
// set that the configuration does not show: those two files are what the
// kubelet's packages read.
func toleratesSwap(n *config.Node, h View) bool {
	if n.Kubelet.FailSwapOn != nil && !*n.Kubelet.FailSwapOn {
		return true
	}
	const flag = "fail-swap-on"
	if slices.ContainsFunc(n.KubeletExtraArgs, func(a config.Arg) bool { return a.Name == flag }) {
		return true
	}
	return slices.ContainsFunc([]string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"}, func(path string) bool {
		text, err := h.ReadFile(path)
		return err == nil && strings.Contains(string(text), flag)
	})
}

func nodeName(name string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			return fault("the node cannot be called %q: %s; set another with --node-name or nodeRegistration.name", name, strings.Join(faults, "; "))
		}
		ctx, cancel := context.WithTimeout(ctx, lookupLimit)
		defer cancel()
		addrs, err := h.LookupHost(ctx, name)
		if err == nil && len(addrs) > 0 {
			return nil
		}
		why := "no address"
		if err != nil {
			why = err.Error()
		}
		return warn("the node's name %q does not resolve on this host (%s): programs that look it up will be slow or fail; add it to /etc/hosts or to DNS", name, why)
	}
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
