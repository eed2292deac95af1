// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/manifests"
)

func upgradeBootstrapToken(flags []string) Phase {
	return Phase{
		Name:    "bootstrap-token",
		Summary: "Update the permissions that nodes need to join",
		Flags:   flags,
		Run: func(ctx context.Context, env *Env) error {
			env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
			return env.keeper().Ensure(ctx, manifests.BootstrapRBAC(env.Config)...)
		},
	}
}
