// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"bytes"
	"context"

	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkTrust runs before anything restarts: components that refuse each other's certificates would take the control plane down.
func checkTrust() step.Phase {
	return step.Phase{Name: "trust", Summary: "Check that clients and servers trust each other", Run: func(_ context.Context, env *step.Env) error {
		return pki.Renewal{Store: env.PKI()}.CheckTrustNow()
	}}
}

// bringCAs gives this host's CAs to their users that a renewal doesn't reach: the kubelet, and the controller manager, which
// signs. Both read them when they start.
func (o Options) bringCAs() step.Phase {
	return step.Phase{Name: "cas", Summary: "Give the CAs to the kubelet and the controller manager", Run: func(_ context.Context, env *step.Env) error {
		changed, err := env.PKI().TrustInKubelet()
		if err != nil {
			return err
		}
		if changed && !o.Restart {
			env.UI.Nextf("Restart the kubelet, so that it reads %s: systemctl restart kubelet", thisnode.KubeletConf(env.Config))
		}
		if err := env.PKI().EnsureSigner(); err != nil || o.Restart {
			return err
		}
		manager, err := node.WithSigner(env)
		if err == nil && !bytes.Equal(manager.Before, manager.Wanted) {
			env.UI.Nextf("ca.crt holds several CAs, and %s does not start with it: before it restarts, let it sign with one, by %s in %s; with --restart, this command does both",
				manager.Name, env.PKI().SignerFlag(), thisnode.StaticPodPath(env.Config, manager.Name))
		}
		return err
	}}
}
