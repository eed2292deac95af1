// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reset takes a node out of its cluster. Node is the workflow of `reset`, on the host itself: it removes the etcd
// member, Pods, files, and the Pod network's traces in the kernel. LostNode is the workflow of `reset node NAME`, on a control
// plane, for a host that's gone. Start at Node, then cleanup_node.go. docs/design/reset.md has the order;
// docs/design/kernel-leftovers.md lists Kubernetes' traces in the kernel.
package reset

import (
	"context"

	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// Node undoes what init or join did to this host. It doesn't stop at anything unreachable: the rest of the cluster may be gone.
func Node() []step.Phase {
	return []step.Phase{
		{Name: "preflight", Summary: "Ask for confirmation, and check this host",
			Flags: []string{"dry-run", "force", "ignore-preflight-errors"}, Run: runPreflight},
		{Name: "remove-etcd-member", Summary: "Remove this node's member from etcd",
			Flags: []string{"dry-run", "force", "kubeconfig"}, Run: runRemoveEtcdMember},
		{Name: "cleanup-node", Summary: "Stop the kubelet and its Pods, and remove the files of this node",
			Flags: []string{"cert-dir", "cleanup-tmp-dir", "cri-socket", "dry-run", "network"}, Run: runCleanupNode},
	}
}

func runPreflight(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Checking this host")
	return node.Check(ctx, env, preflight.Reset(env.Config.Paths)...)
}
