// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

func upgradeAddon() Phase {
	flags := []string{"config", "dry-run", "kubeconfig", "patches"}
	p := addon()
	p.Summary = "Upgrade the cluster's DNS and service proxy, once all control planes have the new version"
	p.Flags = flags
	for i := range p.Children {
		p.Children[i].Flags, p.Children[i].Print = flags, nil
	}
	p.Skip = unlessControlPlane
	return p
}
