// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/renewal"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// checkTrust comes before anything restarts: components that refuse each other's certificates would take the control plane down.
func checkTrust() Phase {
	return Phase{Name: "trust", Summary: "Check that clients and servers trust each other", Run: func(_ context.Context, env *Env) error {
		return renewal.Renewal{Store: env.pki()}.CheckTrustNow()
	}}
}

// bringCAs gives the CAs on this host to what isn't renewed: the kubelet, and the controller manager, which signs. Both read
// them when they start.
func (o RenewOptions) bringCAs() Phase {
	return Phase{Name: "cas", Summary: "Give the CAs to the kubelet and the controller manager", Run: func(_ context.Context, env *Env) error {
		changed, err := env.pki().TrustInKubelet()
		if err != nil {
			return err
		}
		if changed && !o.Restart {
			env.UI.Nextf("Restart the kubelet, so that it reads %s: systemctl restart kubelet", thisnode.KubeletConf(env.Config))
		}
		if err := env.pki().EnsureSigner(); err != nil || o.Restart {
			return err
		}
		manager, err := withSigner(env)
		if err == nil && !bytes.Equal(manager.before, manager.wanted) {
			env.UI.Nextf("ca.crt holds several CAs, and %s does not start with it: before it restarts, let it sign with one, by %s in %s; with --restart, this command does both",
				manager.name, env.pki().SignerFlag(), thisnode.StaticPodPath(env.Config, manager.name))
		}
		return err
	}}
}

// withSigner is the controller manager with a manifest by which it signs with a file of its own if ca.crt holds several CAs. The
// kubelet restarts it when that is written. A manifest with another file, which somebody has chosen, stays.
func withSigner(env *Env) (componentUpgrade, error) {
	c := componentUpgrade{name: manifests.ControllerManagerName}
	have, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, c.name))
	if err != nil {
		return c, err
	}
	c.before = have
	c.wanted, err = env.pki().WithSigner(have)
	return c, err
}
