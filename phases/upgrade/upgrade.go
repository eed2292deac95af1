// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade has the workflows of `upgrade apply` (Apply) and `upgrade node` (Node). Before anything changes, findings.go
// and breakages.go look for problems. control_plane.go replaces the static Pods with node.ReplaceStaticPods, and drain.go
// empties the node. Package addon upgrades the add-ons; package rollback goes back.
package upgrade

import (
	"context"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/step"
)

// common are the flags of most phases' commands.
var common = []string{"config", "dry-run", "kubeconfig"}

// Apply brings a cluster to another version, beginning with this control plane's components and everything the nodes share.
func Apply() []step.Phase {
	return []step.Phase{
		upgradePreflight([]string{"allow-experimental-upgrades", "allow-release-candidate-upgrades", "config", "dry-run", "force",
			"ignore-preflight-errors", "kubeconfig", "yes"}),
		upgradeControlPlane(),
		upgradeUploadConfig(),
		upgradeKubeletConfig(),
		{Name: "bootstrap-token", Summary: "Update the permissions that nodes need to join", Flags: common, Run: runUpgradeBootstrapToken},
		addon.Upgrade(addon.WhenAllUpgraded),
		postUpgrade(),
	}
}

// PlanPhases is Apply plus the upgrade of the add-ons by the last control plane's `upgrade node`. Plans use it to show all changes
// even if something blocks the upgrade, such as another control plane being upgraded.
func PlanPhases() []step.Phase {
	workflow := Apply()
	for i := range workflow {
		switch workflow[i].Name {
		case addon.PhaseName:
			workflow[i] = addon.Upgrade(addon.Always)
		case controlPlanePhase:
			workflow[i].Run = planControlPlane
		}
	}
	return workflow
}

// Node brings this node to the cluster's version, after Apply.
func Node() []step.Phase {
	return []step.Phase{
		upgradePreflight([]string{"config", "ignore-preflight-errors"}),
		{Name: "drain", Summary: "Cordon this node and evict its Pods", Flags: append([]string{"drain-force", "drain-timeout"}, common...),
			Run: runDrain, Skip: unlessDrain},
		upgradeControlPlane(),
		upgradeKubeletConfig(),
		addon.Upgrade(addon.WhenAllUpgraded),
		postUpgrade(),
		{Name: "uncordon", Summary: "Uncordon this node, if the phase drain has cordoned it", Flags: common, Run: runUncordon},
	}
}

func runUpgradeBootstrapToken(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
	return env.Keeper().Ensure(ctx, manifests.BootstrapRBAC(env.Config)...)
}
