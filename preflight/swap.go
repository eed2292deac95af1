// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// swap is an error exactly if the kubelet, as it will be configured, refuses to start on a host with swap.
func swap(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		areas, err := h.Swap()
		if err != nil {
			return warn("cannot check whether swap is on: %v", err).remedy("check it with `swapon --show`")
		}
		if len(areas) == 0 {
			return nil
		}
		where, refuses := strings.Join(areas, ", "), effectiveKubelet(n, h).failSwapOn
		if !refuses.value {
			return warn("swap is on (%s), and the kubelet is configured to run with it (%s)", where, refuses.from).
				remedy("if Pods are meant to use swap, set memorySwap in a KubeletConfiguration (cgroup v2 only): https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/")
		}
		return fail("swap is on (%s), and the kubelet does not start with it (failSwapOn is true: %s)", where, refuses.from).
			remedy("turn swap off with `swapoff -a` and remove it from /etc/fstab, or set failSwapOn: false in a KubeletConfiguration")
	}
}
