// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

func runtimeReady(socket string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, socket)
		if err != nil {
			return fault("the container runtime does not answer: %v", err)
		}
		if !info.Ready {
			return fault("the container runtime %s %s says that it is not ready: %s; its log tells more", info.Name, info.Version, info.Reason)
		}
		return nil
	}
}

// runtimeVersion is about the cgroup driver: the kubelet asks the runtime for
// it (KEP-4033), and one that is too old to answer must be of the same mind as
// the kubelet's configuration by chance.
func runtimeVersion(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, n.CRISocket)
		if err != nil {
			return fault("the container runtime's version cannot be told, because it does not answer at %s: see CRI", n.CRISocket)
		}
		if tellsDriver(info) {
			return nil
		}
		if want := effectiveKubelet(n, h).cgroupDriver.value; info.CgroupDriver != "" && want != info.CgroupDriver {
			return fault("%s %s uses the cgroup driver %s, and the kubelet would use %s: set the same in both, or update the runtime to one that tells the kubelet its driver (containerd 2.0, CRI-O 1.28)",
				info.Name, info.Version, info.CgroupDriver, want)
		}
		return warn("%s %s cannot tell the kubelet its cgroup driver, which Kubernetes 1.37 will require: update it (containerd 2.0, CRI-O 1.28)", info.Name, info.Version)
	}
}

// tellsDriver is false for runtimes that do not know CRI's RuntimeConfig.
// containerd learnt it with 2.0, but shows its driver in another way before.
func tellsDriver(info host.RuntimeInfo) bool {
	if info.CgroupDriver == "" {
		return false
	}
	v, err := version.ParseGeneric(info.Version)
	return info.Name != "containerd" || err != nil || v.AtLeast(version.MustParseGeneric("2.0"))
}
