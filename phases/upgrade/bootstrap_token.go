// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

func upgradeBootstrapToken(flags []string) step.Phase {
	return step.Phase{
		Name:    "bootstrap-token",
		Summary: "Update the permissions that nodes need to join",
		Flags:   flags,
		Run: func(ctx context.Context, env *step.Env) error {
			env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
			return env.Keeper().Ensure(ctx, manifests.BootstrapRBAC(env.Config)...)
		},
	}
}
