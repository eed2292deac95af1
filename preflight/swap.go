// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// swap is an error exactly where the kubelet, as it will be configured, ends at
// once on a host with swap.
func swap(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		areas, err := h.Swap()
		if err != nil {
			return warn("whether swap is on cannot be told: %v", err)
		}
		if len(areas) == 0 {
			return nil
		}
		where, fail := strings.Join(areas, ", "), effectiveKubelet(n, h).failSwapOn
		if !fail.value {
			return warn("swap is on (%s), and the kubelet is told to run nevertheless (%s); Pods get some only with cgroup v2 and memorySwap in its configuration: https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/", where, fail.from)
		}
		return fault("swap is on (%s), and the kubelet would not start (failSwapOn is true: %s): turn it off with `swapoff -a` and take it out of /etc/fstab, or set failSwapOn: false in a KubeletConfiguration", where, fail.from)
	}
}
