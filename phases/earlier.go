// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// Earlier is what a run finds of the runs before it. Only LookBack decides it, before anything changes; the command of a single
// phase, which writes what its configuration says, has no Again.
type Earlier struct {
	// Again says that a whole workflow runs on a host that was a node before, or half of one (HasBegun): what an
	// operator has edited there and in the cluster stays (internal/ownership).
	Again bool
	// Unfinished says that no earlier init or join came to its end. Until then nobody runs anything on the node, so files that
	// Slipway has written and nobody has edited are still its own. It is false unless that was seen.
	Unfinished bool
	// First says that a whole workflow runs on a host where none has come to its end.
	First bool
}

// LookBack finds out what earlier runs have left.
func LookBack(ctx context.Context, env *Env) Earlier {
	e := Earlier{
		Again:      thisnode.HasBegun(env.Host, env.Config),
		Unfinished: thisnode.SeemsUnfinished(env.Host, env.Config) && (env.Config.Join != nil || lacksClusterConfiguration(ctx, env)),
	}
	e.First = !e.Again || e.Unfinished
	return e
}

// LookBackAlone is LookBack for the command of a single phase of init. Apart from preflight, only certificates and kubeconfig files
// depend on it, so as long as those that are here fit the configuration, nobody is asked: that takes seconds where etcd is down.
func LookBackAlone(ctx context.Context, env *Env, p Phase) Earlier {
	if p.Name != "preflight" && len(env.pki().Faults()) == 0 {
		return Earlier{}
	}
	return Earlier{Unfinished: LookBack(ctx, env).Unfinished}
}

// lacksClusterConfiguration reports whether the cluster that an earlier init has begun keeps no ClusterConfiguration yet.
// kubelet.conf alone does not say it: a kubelet that doesn't rotate its certificate never changes it.
func lacksClusterConfiguration(ctx context.Context, env *Env) bool {
	if thisnode.IsControlPlane(env.Host) {
		if have, known := storedConfiguration(ctx, env); known {
			return have == nil
		}
	}
	return etcdHasNone(ctx, env)
}
