// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

func bootstrapToken() Phase {
	return Phase{
		Name:    "bootstrap-token",
		Summary: "Create the bootstrap tokens and the permissions that nodes need to join",
		Flags:   []string{"config", "dry-run", "kubeconfig", "skip-token-print"},
		Run:     runBootstrapToken,
	}
}

// runBootstrapToken writes everything that a joining node needs from the API:
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func runBootstrapToken(ctx context.Context, env *Env) error {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	missing, signers, err := env.tokens().Missing(ctx, env.Config.BootstrapTokens)
	if err != nil {
		return err
	}
	ca, err := env.pki().CA(certs.CA)
	if err != nil {
		return err
	}
	kubeconfig, err := kubeconfig.ClusterInfo("https://"+env.Config.Endpoint(), ca.Bundle())
	if err != nil {
		return err
	}
	info := manifests.ClusterInfo(kubeconfig)
	rbac := manifests.BootstrapRBAC(env.Config)
	env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
	if !env.Again {
		if _, err := manifests.SignClusterInfo(info, signers); err != nil {
			return err
		}
		return env.keeper().Ensure(ctx, slices.Concat(missing, []manifests.Object{info}, rbac)...)
	}
	if err := env.keeper().Ensure(ctx, missing...); err != nil {
		return err
	}
	if err := env.keeper().EnsureMissing(ctx, "init phase bootstrap-token", slices.Concat([]manifests.Object{info}, rbac)...); err != nil {
		return err
	}
	_, err = env.tokens().SignClusterInfo(ctx, signers)
	return err
}
