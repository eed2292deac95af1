// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func bootstrapToken() step.Phase {
	return step.Phase{
		Name:    "bootstrap-token",
		Summary: "Create the bootstrap tokens and the permissions that nodes need to join",
		Flags:   []string{"config", "dry-run", "kubeconfig", "skip-token-print"},
		Run:     runBootstrapToken,
	}
}

// runBootstrapToken writes everything a joining node needs from the API:
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func runBootstrapToken(ctx context.Context, env *step.Env) error {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	missing, signers, err := env.Tokens().Missing(ctx, env.Config.BootstrapTokens)
	if err != nil {
		return err
	}
	ca, err := env.PKI().CA(certs.CA)
	if err != nil {
		return err
	}
	info, err := clusterInfo(env, ca)
	if err != nil {
		return err
	}
	rbac := manifests.BootstrapRBAC(env.Config)
	env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
	if !env.Rerun {
		if _, err := manifests.SignClusterInfo(info, signers); err != nil {
			return err
		}
		return env.Keeper().Ensure(ctx, slices.Concat(missing, []manifests.Object{info}, rbac)...)
	}
	if err := env.Keeper().Ensure(ctx, missing...); err != nil {
		return err
	}
	if err := env.Keeper().EnsureMissing(ctx, "init phase bootstrap-token", slices.Concat([]manifests.Object{info}, rbac)...); err != nil {
		return err
	}
	_, err = env.Tokens().SignClusterInfo(ctx, signers)
	return err
}

// clusterInfo takes the endpoint from the administrator's kubeconfig if the configuration has none: a phase that runs by itself may
// not know the cluster's configuration. A whole run does, and that file may lead elsewhere, to a proxy for example.
func clusterInfo(env *step.Env, ca certs.Pair) (*corev1.ConfigMap, error) {
	endpoint := env.Config.Endpoint()
	if env.Config.Cluster.ControlPlaneEndpoint == "" && !env.Rerun {
		if admin, err := env.Host.ReadFile(env.Config.Paths.AdminKubeconfig); err == nil {
			if at, err := kubeconfig.Endpoint(admin); err == nil && at != "" {
				endpoint = at
			}
		}
	}
	file, err := kubeconfig.ClusterInfo("https://"+endpoint, ca.Bundle())
	if err != nil {
		return nil, err
	}
	return manifests.ClusterInfo(file), nil
}

// withheld replaces a secret the user doesn't want printed.
const withheld = "<value withheld>"

func showJoinCommand(command string) step.Phase {
	return step.Phase{
		Name:    "show-join-command",
		Summary: "Show how to use the cluster and how nodes join it",
		Flags:   []string{},
		Run:     func(ctx context.Context, env *step.Env) error { return runShowJoinCommand(ctx, env, command) },
	}
}

func runShowJoinCommand(ctx context.Context, env *step.Env, name string) error {
	n := env.Config
	command, err := buildJoinCommand(ctx, env)
	if err != nil {
		return err
	}
	command.Command = name
	env.UI.Outcome(outcome(n, command))
	env.UI.Nextf("Cluster %q is running, with its control plane on %s.", n.Cluster.ClusterName, n.Name)
	env.UI.Nextf("To use it as root: `export KUBECONFIG=%s`", n.Paths.AdminKubeconfig)
	reportNetwork(env)
	warnOfEndpoint(ctx, env)
	if n.SkipTokenPrint {
		command.Token = withheld
	}
	worker := command.Text(newLine)
	if sharesWithOthers(n) {
		command.CertificateKey = n.CertificateKey.Reveal()
		if n.SkipCertificateKeyPrint {
			command.CertificateKey = withheld
		}
		env.UI.Nextf("More control planes can join within two hours, with:")
		env.UI.Result(command.Text(newLine))
	}
	env.UI.Nextf("Workers can join with:")
	env.UI.Result(worker)
	return nil
}

// warnOfEndpoint asks the API server at the cluster's endpoint, as all other nodes, kube-proxy and the join commands will. It may be a
// load balancer or a virtual address that comes later.
func warnOfEndpoint(ctx context.Context, env *step.Env) {
	if env.Config.Cluster.ControlPlaneEndpoint == "" {
		return
	}
	endpoint := env.Config.Endpoint()
	err := node.AskServer(ctx, env, endpoint, "")
	if err != nil && !errors.Is(err, host.ErrNotInPlan) && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil { // only the phase was asked for
		env.UI.Warn(fmt.Sprintf("the control plane's endpoint %s does not lead to this API server: %v. Other nodes, kube-proxy and admin.conf need it", endpoint, err),
			fmt.Sprintf("make it lead here, on every node: DNS or /etc/hosts, and a load balancer that passes TLS through; `curl --cacert %s https://%s/readyz` shows what answers",
				filepath.Join(env.Config.Paths.PKI, "ca.crt"), endpoint))
	}
}

func reportNetwork(env *step.Env) {
	n := env.Config
	switch {
	case n.NetworkAddOn.Name != "":
		return
	case len(n.PodSubnets()) == 0:
		env.UI.Nextf("No Pod network is configured. Nodes become Ready once you install a network add-on:")
	default:
		env.UI.Nextf("Nodes become Ready once you install a network add-on for %s:", n.Cluster.Networking.PodSubnet)
	}
	env.UI.Nextf("  https://kubernetes.io/docs/concepts/cluster-administration/addons/")
}

// sharesWithOthers reports whether more control planes can join: the certificates are shared, and the cluster has an address that
// leads to all control planes.
func sharesWithOthers(n *config.Node) bool {
	return n.UploadCerts && n.Cluster.ControlPlaneEndpoint != ""
}

// newLine continues a shell command on the next line.
const newLine = " \\\n\t"

func buildJoinCommand(ctx context.Context, env *step.Env) (tokens.JoinCommand, error) {
	if len(env.Config.BootstrapTokens) == 0 {
		return tokens.JoinCommand{}, errors.New("the configuration has no bootstrap token, so there is no join command to show")
	}
	token, err := env.Tokens().ToJoinWith(ctx, env.Config.BootstrapTokens[0])
	if err != nil {
		return tokens.JoinCommand{}, err
	}
	ca, err := env.PKI().CA(certs.CA)
	if err != nil {
		return tokens.JoinCommand{}, err
	}
	command := tokens.JoinCommand{Endpoint: env.Config.Endpoint(), Token: token.ID + "." + token.Secret.Reveal()}
	for _, cert := range ca.Bundle() {
		command.Pins = append(command.Pins, certs.PublicKeyPin(cert))
	}
	return command, nil
}

// outcome is the result for programs. A command that lacks a secret is useless to them, so it's left out.
func outcome(n *config.Node, command tokens.JoinCommand) ui.Outcome {
	o := ui.Outcome{CACertHashes: command.Pins}
	showKey := n.UploadCerts && !n.SkipCertificateKeyPrint
	if showKey {
		o.CertificateKey = n.CertificateKey
	}
	if n.SkipTokenPrint {
		return o
	}
	o.Token, o.JoinCommand = config.NewSecret(command.Token), config.NewSecret(command.Text(" "))
	if showKey && sharesWithOthers(n) {
		command.CertificateKey = n.CertificateKey.Reveal()
		o.ControlPlaneJoinCommand = config.NewSecret(command.Text(" "))
	}
	return o
}
