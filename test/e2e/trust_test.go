// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import "testing"

// promises are what Slipway does on nodes that are old, edited by hand or half broken. Each is checked on a real node.
// docs/what-slipway-keeps.md describes them for users. Set SLIPWAY_E2E_PROGRAM to check an older build.
var promises = []struct {
	name string
	keep func(m machine)
}{
	{"1-lost-voter", replacesLostVoter},
	{"2-edits", keepOperatorEdits},
	{"3-joined", saysJoinedWhenItHas},
	{"4-old-clusters", joinsOldCluster},
	{"5-rootless", rootlessKeepsOwners},
	{"6-bundle", bundleIsSafe},
	{"7-reset", keepsQuorumOnReset},
	{"8-kubeconfig", followsUserKubeconfig},
	{"9-no-systemd", worksWithoutSystemd},
	{"10-cli", answersAsKubeadm},
}

// TestTrust boots a fresh node for each promise.
func TestTrust(t *testing.T) {
	t.Parallel()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) { p.keep(boot(t)) })
	}
}
