// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Apply brings a cluster to another version, beginning with this control plane's components and everything the nodes share.
func Apply() []step.Phase {
	common := []string{"config", "dry-run", "kubeconfig"}
	return []step.Phase{
		upgradePreflight([]string{"allow-experimental-upgrades", "allow-release-candidate-upgrades", "config", "dry-run", "force",
			"ignore-preflight-errors", "kubeconfig", "yes"}),
		upgradeControlPlane(),
		upgradeUploadConfig(common),
		upgradeKubeletConfig(),
		upgradeBootstrapToken(common),
		addon.Upgrade(addon.OnceUpgraded),
		postUpgrade(common),
	}
}

// Whole is Apply plus the upgrade of the add-ons by the last control plane's `upgrade node`. Plans use it to show all changes
// even if something blocks the upgrade, such as another control plane being upgraded.
func Whole() []step.Phase {
	workflow := Apply()
	for i := range workflow {
		switch workflow[i].Name {
		case addon.PhaseName:
			workflow[i] = addon.Upgrade(addon.Regardless)
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
		drain(),
		upgradeControlPlane(),
		upgradeKubeletConfig(),
		addon.Upgrade(addon.OnceUpgraded),
		postUpgrade([]string{"config", "dry-run", "kubeconfig"}),
		uncordon(),
	}
}

func upgradeUploadConfig(flags []string) step.Phase {
	p := node.UploadConfig()
	p.Summary = "Store the configuration with the new version in the cluster"
	p.Flags = flags
	p.Children[0].Run, p.Children[1].Run = uploadUpgradedConfig, uploadUpgradedKubeletConfig
	for i := range p.Children {
		p.Children[i].Flags = flags
	}
	return p
}
