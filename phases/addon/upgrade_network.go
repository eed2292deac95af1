// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// upgradeNetwork upgrades flannel if `init --network flannel` installed it. Any other network is its owner's to upgrade.
func upgradeNetwork(ctx context.Context, env *step.Env) error {
	live := &appsv1.DaemonSet{}
	live.Namespace, live.Name = manifests.FlannelNamespace, manifests.FlannelDaemonSet
	found, err := env.Cluster.Get(ctx, live)
	if err != nil {
		return err
	}
	if !found || !manifests.ByFlannel(live) {
		env.UI.Printf("Leaving the Pod network as it is: it was not installed with --network flannel")
		return nil
	}
	list, err := Versions(env, manifests.Flannel)
	if err != nil {
		return err
	}
	if image := env.Config.Image(config.FlannelImage); image != manifests.ImageOfFlannel(live) {
		env.UI.Printf("Upgrading flannel to %s", image)
	}
	return UpgradeObjects(ctx, env, "addon network --network flannel", list)
}
