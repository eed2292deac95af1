// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// withheld replaces a secret that the user does not want printed.
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
	env.UI.Nextf("Cluster %q is running, with its control plane on %s.", n.Cluster.ClusterName, n.Name)
	env.UI.Nextf("To use it as root: `export KUBECONFIG=%s`", n.Paths.AdminKubeconfig)
	if len(n.PodSubnets()) == 0 {
		env.UI.Nextf("No Pod network is configured. Nodes become Ready once you install a network add-on:")
	} else {
		env.UI.Nextf("Nodes become Ready once you install a network add-on for %s:", n.Cluster.Networking.PodSubnet)
	}
	env.UI.Nextf("  https://kubernetes.io/docs/concepts/cluster-administration/addons/")
	if n.SkipTokenPrint {
		facts.token = withheld
	}
	join := facts.command(newLine)
	if sharesWithOthers(n) {
		key := n.CertificateKey.Reveal()
		if n.SkipCertificateKeyPrint {
			key = withheld
		}
		env.UI.Nextf("More control planes can join within two hours, with:")
		env.UI.Result(controlPlaneCommand(join, newLine, key))
	}
	env.UI.Nextf("Workers can join with:")
	env.UI.Result(join)
	return nil
}

// sharesWithOthers reports whether more control planes can join: the certificates are shared, and the cluster has an
// address that leads to all of them.
func sharesWithOthers(n *config.Node) bool {
	return n.UploadCerts && n.Cluster.ControlPlaneEndpoint != ""
}

// newLine continues a shell command on the next line.
const newLine = " \\\n\t"

// joinCommand begins the commands that are shown for copying. A program that was called by another name shows that one
// instead: cmd/slipway/program_name.go.
const joinCommand = "slipway join "

// joinFacts are what the administrator of a joining node has to know.
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

// controlPlaneCommand turns a worker's command into one for a control plane.
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
