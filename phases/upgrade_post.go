// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import "context"

func postUpgrade(flags []string) Phase {
	return Phase{
		Name:    "post-upgrade",
		Summary: "Remove what older versions have left, and say what is next",
		Flags:   flags,
		Run:     runPostUpgrade,
	}
}

func runPostUpgrade(_ context.Context, env *Env) error {
	env.UI.Nextf("Upgrade the kubelet of this node to %s, if that is not done", env.Config.Cluster.KubernetesVersion)
	return nil
}
