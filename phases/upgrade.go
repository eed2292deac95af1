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
		upgradeAddon(onceUpgraded),
		postUpgrade(common),
	}
}

// WholeUpgrade is UpgradeApply with what `upgrade node` does to the cluster on the last of several control planes: the
// add-ons are upgraded, whatever the other control planes run. It is for plans, which show the changes even when something is
// in the way of the upgrade, such as another control plane that is being upgraded.
func WholeUpgrade() []Phase {
	workflow := UpgradeApply()
	for i := range workflow {
		switch workflow[i].Name {
		case addonPhase:
			workflow[i] = upgradeAddon(regardless)
		case controlPlanePhase:
			workflow[i].Run = planControlPlane
		}
	}
	return workflow
}

// UpgradeNode brings this node to the version that UpgradeApply has brought the cluster to.
func UpgradeNode() []Phase {
	return []Phase{
		upgradePreflight([]string{"config", "ignore-preflight-errors"}),
		drain(),
		upgradeControlPlane(),
		upgradeKubeletConfig(),
		upgradeAddon(onceUpgraded),
		postUpgrade([]string{"config", "dry-run", "kubeconfig"}),
		uncordon(),
	}
}

func upgradeUploadConfig(flags []string) Phase {
	p := uploadConfig()
	p.Summary = "Store the configuration with the new version in the cluster"
	p.Flags = flags
	p.Children[0].Run, p.Children[1].Run = uploadUpgradedConfig, uploadUpgradedKubeletConfig
	for i := range p.Children {
		p.Children[i].Flags = flags
	}
	return p
}
