// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
	"path/filepath"

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

// bringCAs gives the CAs on this host to what isn't renewed: the kubelet, and the controller manager, which signs. The kubelet
// reads them when it starts.
func (o RenewOptions) bringCAs() Phase {
	return Phase{Name: "cas", Summary: "Give the CAs to the kubelet and the controller manager", Run: func(_ context.Context, env *Env) error {
		changed, err := env.pki().TrustInKubelet()
		if err != nil {
			return err
		}
		if changed && !o.Restart {
			env.UI.Nextf("Restart the kubelet, so that it reads %s: systemctl restart kubelet", thisnode.KubeletConf(env.Config))
		}
		return useSigner(env)
	}}
}

// useSigner makes the controller manager sign with a file that holds the CA that signs alone. The kubelet restarts it.
func useSigner(env *Env) error {
	several, err := env.pki().SeveralCAs()
	if err == nil {
		err = env.pki().EnsureSigner()
	}
	if err != nil || !several {
		return err
	}
	path := thisnode.StaticPodPath(env.Config, manifests.ControllerManagerName)
	have, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return err
	}
	const flag = "--cluster-signing-cert-file="
	before, after := flag+filepath.Join(env.Config.Paths.PKI, "ca.crt")+"\n", flag+filepath.Join(env.Config.Paths.PKI, manifests.SignerFile)+"\n"
	if !bytes.Contains(have, []byte(before)) { // it has been changed, or somebody has chosen another file
		return nil
	}
	env.UI.Printf("ca.crt holds several CAs, and kube-controller-manager signs with one: changing %s in %s", flag[2:len(flag)-1], path)
	_, err = env.Host.WriteFile(path, bytes.ReplaceAll(have, []byte(before), []byte(after)), 0o600)
	return err
}
