// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/certs"
)

// withheld stands for a secret that the user does not want printed.
const withheld = "<value withheld>"

func showJoinCommand() Phase {
	return Phase{
		Name:    "show-join-command",
		Summary: "Show how to use the cluster and how nodes join it",
		Flags:   []string{},
		Run:     runShowJoinCommand,
	}
}

func runShowJoinCommand(ctx context.Context, env *Env) error {
	join, err := joinCommand(ctx, env)
	if err != nil {
		return err
	}
	n := env.Config
	env.UI.Printf("The control plane of cluster %q runs on %s.", n.Cluster.ClusterName, n.Name)
	env.UI.Printf("To use it as root:  export KUBECONFIG=%s", n.Paths.AdminKubeconfig)
	if len(n.PodSubnets()) == 0 {
		env.UI.Printf("No pod network is configured; nodes become Ready once a network add-on runs:")
	} else {
		env.UI.Printf("Nodes become Ready once a network add-on for %s runs:", n.Cluster.Networking.PodSubnet)
	}
	env.UI.Printf("  https://kubernetes.io/docs/concepts/cluster-administration/addons/")
	if n.UploadCerts {
		key := n.CertificateKey.Reveal()
		if n.SkipCertificateKeyPrint {
			key = withheld
		}
		env.UI.Printf("Within two hours, more control planes join with:")
		env.UI.Result(join + " \\\n\t--control-plane --certificate-key " + key)
	}
	env.UI.Printf("Workers join with:")
	env.UI.Result(join)
	return nil
}

// joinCommand is what a worker's administrator types, on two lines.
func joinCommand(ctx context.Context, env *Env) (string, error) {
	token, err := joinToken(ctx, env)
	if err != nil {
		return "", err
	}
	ca, err := clusterCA(env)
	if err != nil {
		return "", err
	}
	text := withheld
	if !env.Config.SkipTokenPrint {
		text = token.ID + "." + token.Secret.Reveal()
	}
	var pins strings.Builder
	for _, cert := range ca.Bundle() {
		fmt.Fprintf(&pins, " \\\n\t--discovery-token-ca-cert-hash %s", certs.PublicKeyPin(cert))
	}
	return fmt.Sprintf("%s join %s --token %s%s", env.UI.Program(), env.Config.Endpoint(), text, pins.String()), nil
}
