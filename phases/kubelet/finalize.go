// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func Finalize() step.Phase {
	flags := []string{"cert-dir", "config", "dry-run"}
	return step.Phase{
		Name:    "kubelet-finalize",
		Summary: "Update the kubelet's settings once the cluster is running",
		Flags:   flags,
		Children: []step.Phase{{
			Name:    "enable-client-cert-rotation",
			Summary: "Let the kubelet use the client certificate that it rotates",
			Flags:   flags,
			Run:     node.EnableClientCertRotation,
		}},
	}
}
