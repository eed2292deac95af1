// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

// UpgradeApply brings a cluster to another version, beginning with this control plane: its own components, and what all
// nodes share.
func UpgradeApply() []Phase {
	common := []string{"config", "dry-run", "kubeconfig"}
	return []Phase{
		upgradePreflight([]string{"allow-experimental-upgrades", "allow-release-candidate-upgrades", "config", "dry-run", "force",
			"ignore-preflight-errors", "kubeconfig", "yes"}),
		upgradeControlPlane(),
		upgradeUploadConfig(common),
		upgradeKubeletConfig(),
		upgradeBootstrapToken(common),
		upgradeAddon(),
		postUpgrade(common),
	}
}

// UpgradeNode brings this node to the version that UpgradeApply has brought the cluster to.
func UpgradeNode() []Phase {
	return []Phase{
		upgradePreflight([]string{"config", "ignore-preflight-errors"}),
		drain(),
		upgradeControlPlane(),
		upgradeKubeletConfig(),
		upgradeAddon(),
		postUpgrade([]string{"config", "dry-run", "kubeconfig"}),
		uncordon(),
	}
}

func upgradeUploadConfig(flags []string) Phase {
	p := uploadConfig()
	p.Summary = "Store the configuration with the new version in the cluster"
	p.Flags = flags
	for i := range p.Children {
		p.Children[i].Flags = flags
	}
	return p
}
