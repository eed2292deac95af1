// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster"
)

// Labels that tell control planes from workers:
// https://kubernetes.io/docs/reference/labels-annotations-taints/
const (
	labelControlPlane   = "node-role.kubernetes.io/control-plane"
	labelExcludeFromLBs = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// annotationCRISocket tells other tools which runtime a node uses. It is not
// needed where the kubelet's own instance configuration says so.
const annotationCRISocket = "kubeadm.alpha.kubernetes.io/cri-socket"

func markControlPlane() Phase {
	return Phase{
		Name:    "mark-control-plane",
		Summary: "Label and taint this node as a control plane",
		Flags:   []string{"config", "dry-run", "node-name"},
		Run:     runMarkControlPlane,
	}
}

func runMarkControlPlane(ctx context.Context, env *Env) error {
	n := env.Config
	env.UI.Printf("Marking node %s as a control plane, with %d taints", n.Name, len(n.Taints))
	failure := "node " + n.Name + " cannot be marked"
	return watched(ctx, env, n.Timeouts.KubeletHealthCheck, nodeTarget(n), failure, func(ctx context.Context) error {
		if err := env.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		return env.Cluster.MarkNode(ctx, n.Name, cluster.Mark{
			Labels: map[string]string{labelControlPlane: "", labelExcludeFromLBs: ""},
			Taints: n.Taints,
		})
	})
}
