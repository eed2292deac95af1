// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const startRuntime = "start it, or name its socket with --cri-socket"

func runtimeReady(socket string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, socket)
		if err != nil {
			return fail("the container runtime does not answer: %v", err).remedy("%s", cmp.Or(fault.Remedy(err), startRuntime))
		}
		if !info.Ready {
			return fail("the container runtime %s %s is not ready: %s", info.Name, info.Version, info.Reason).remedy("see its log")
		}
		return nil
	}
}

// runtimeVersion is about the cgroup driver. The kubelet asks the runtime for it (KEP-4033); a runtime too old to answer has to
// use the driver in the kubelet's configuration.
func runtimeVersion(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		info, err := h.RuntimeInfo(ctx, n.CRISocket)
		if err != nil {
			return fail("cannot read the container runtime's version: it does not answer at %s", n.CRISocket).remedy(startRuntime)
		}
		if reportsDriver(info) {
			return nil
		}
		if info.Name == "" { // every running runtime has a name
			return unasked("the version of a container runtime that does not run yet")
		}
		if want := effectiveKubelet(n, h).cgroupDriver.value; info.CgroupDriver != "" && want != info.CgroupDriver {
			return fail("%s %s uses the cgroup driver %s, but the kubelet would use %s", info.Name, info.Version, info.CgroupDriver, want).
				remedy("set the same driver in both, or " + updateRuntime)
		}
		return warn("%s %s cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that", info.Name, info.Version).
			remedy(updateRuntime)
	}
}

// updateRuntime names the first versions with a reported cgroup driver.
const updateRuntime = "update the container runtime to containerd 2.0, CRI-O 1.28 or later"

// reportsDriver reports whether the runtime knows CRI's RuntimeConfig. containerd has it since 2.0; earlier versions show their
// driver in another way.
func reportsDriver(info host.RuntimeInfo) bool {
	if info.CgroupDriver == "" {
		return false
	}
	v, err := version.ParseGeneric(info.Version)
	return info.Name != "containerd" || err != nil || v.AtLeast(version.MustParseGeneric("2.0"))
}
