// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
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
	n := env.Config
	facts, err := howToJoin(ctx, env)
	if err != nil {
		return err
	}
	env.UI.Outcome(facts.outcome(n))
	env.UI.Printf("The control plane of cluster %q runs on %s.", n.Cluster.ClusterName, n.Name)
	env.UI.Printf("To use it as root:  export KUBECONFIG=%s", n.Paths.AdminKubeconfig)
	if len(n.PodSubnets()) == 0 {
		env.UI.Printf("No pod network is configured; nodes become Ready once a network add-on runs:")
	} else {
		env.UI.Printf("Nodes become Ready once a network add-on for %s runs:", n.Cluster.Networking.PodSubnet)
	}
	env.UI.Printf("  https://kubernetes.io/docs/concepts/cluster-administration/addons/")
	if n.SkipTokenPrint {
		facts.token = withheld
	}
	join := facts.command(newLine)
	if sharesWithOthers(n) {
		key := n.CertificateKey.Reveal()
		if n.SkipCertificateKeyPrint {
			key = withheld
		}
		env.UI.Printf("Within two hours, more control planes join with:")
		env.UI.Result(controlPlaneCommand(join, newLine, key))
	}
	env.UI.Printf("Workers join with:")
	env.UI.Result(join)
	return nil
}

// sharesWithOthers reports whether more control planes can join: the certificates
// are shared, and the cluster has an address that leads to all of them.
func sharesWithOthers(n *config.Node) bool {
	return n.UploadCerts && n.Cluster.ControlPlaneEndpoint != ""
}

// newLine goes on with a shell's command on the next line.
const newLine = " \\\n\t"

// joinCommand begins the commands that are shown for copying. Whoever called the program by another name
// reads that instead: cmd/slipway/program_name.go.
const joinCommand = "slipway join "

// joinFacts are what the administrator of a joining node must know.
type joinFacts struct {
	endpoint, token string
	pins            []string
}

func howToJoin(ctx context.Context, env *Env) (joinFacts, error) {
	token, err := joinToken(ctx, env)
	if err != nil {
		return joinFacts{}, err
	}
	ca, err := clusterCA(env)
	if err != nil {
		return joinFacts{}, err
	}
	f := joinFacts{env.Config.Endpoint(), token.ID + "." + token.Secret.Reveal(), nil}
	for _, cert := range ca.Bundle() {
		f.pins = append(f.pins, certs.PublicKeyPin(cert))
	}
	return f, nil
}

// command is what a worker's administrator types.
func (f joinFacts) command(separator string) string {
	text := joinCommand + f.endpoint + " --token " + f.token
	for _, pin := range f.pins {
		text += separator + "--discovery-token-ca-cert-hash " + pin
	}
	return text
}

// controlPlaneCommand makes of a worker's command that of a control plane.
func controlPlaneCommand(join, separator, key string) string {
	return join + separator + "--control-plane --certificate-key " + key
}

// outcome is the same for programs. A command that lacks a secret is of no use
// to them.
func (f joinFacts) outcome(n *config.Node) ui.Outcome {
	o := ui.Outcome{CACertHashes: f.pins}
	join, showKey := f.command(" "), n.UploadCerts && !n.SkipCertificateKeyPrint
	if showKey {
		o.CertificateKey = n.CertificateKey
	}
	if n.SkipTokenPrint {
		return o
	}
	o.Token, o.JoinCommand = config.NewSecret(f.token), config.NewSecret(join)
	if showKey && sharesWithOthers(n) {
		o.ControlPlaneJoinCommand = config.NewSecret(controlPlaneCommand(join, " ", n.CertificateKey.Reveal()))
	}
	return o
}
