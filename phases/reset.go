// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/preflight"
)

// Reset undoes what init or join did to this host. It does not stop at what cannot be reached: the rest of the
// cluster may be gone.
func Reset() []Phase {
	return []Phase{
		preflightReset(),
		removeEtcdMember(),
		cleanupNode(),
	}
}

func preflightReset() Phase {
	return Phase{
		Name:    "preflight",
		Summary: "Ask for confirmation, and check this host",
		Flags:   []string{"dry-run", "force", "ignore-preflight-errors"},
		Run: func(ctx context.Context, env *Env) error {
			env.UI.Printf("Checking this host")
			return show(env, preflight.Run(ctx, preflight.Reset(env.Config), env.Host, env.Config.IgnorePreflightErrors))
		},
	}
}
