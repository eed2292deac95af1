// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// DetectEarlierRun finds out how far earlier runs got.
func DetectEarlierRun(ctx context.Context, env *step.Env) step.Earlier {
	e := step.Earlier{
		Rerun:      thisnode.HasBegun(env.Host, env.Config),
		Unfinished: thisnode.SeemsUnfinished(env.Host, env.Config) && (env.Config.Join != nil || lacksClusterConfiguration(ctx, env)),
	}
	e.First = !e.Rerun || e.Unfinished
	return e
}

// DetectEarlierPhaseRun is DetectEarlierRun for a single phase of init. Apart from preflight, only certificates and kubeconfig
// files depend on it, so as long as the existing certificates fit the configuration, it asks nobody: asking takes seconds while
// etcd is down.
func DetectEarlierPhaseRun(ctx context.Context, env *step.Env, p step.Phase) step.Earlier {
	if p.Name != "preflight" && len(env.PKI().Faults()) == 0 {
		return step.Earlier{}
	}
	return step.Earlier{Unfinished: DetectEarlierRun(ctx, env).Unfinished}
}

// lacksClusterConfiguration reports whether the cluster an earlier init has begun has no ClusterConfiguration yet. kubelet.conf
// alone doesn't show it: a kubelet that doesn't rotate its certificate never changes the file.
func lacksClusterConfiguration(ctx context.Context, env *step.Env) bool {
	if thisnode.IsControlPlane(env.Host) {
		if have, known := storedConfiguration(ctx, env); known {
			return have == nil
		}
	}
	return etcdLacksConfiguration(ctx, env)
}

// podKeeper returns the keeper of a component's static Pod. An etcd that has joined may be a voter the others need, so its static
// Pod stays.
func podKeeper(env *step.Env, component string) ownership.Keeper {
	k := env.Keeper()
	if component == manifests.EtcdName && env.Config.Join != nil {
		k.Unfinished = k.Unfinished && !thisnode.HasJoined(env.Host, env.Config)
	}
	return k
}

// replaceUnfinished writes the static Pod of a component that an earlier run may have started, and makes the component run with
// it and with reissued files. The kubelet by itself would take 15 to 25 seconds (node.ReplaceStaticPods).
func replaceUnfinished(ctx context.Context, env *step.Env, component string, pending []ownership.File) error {
	_, missing := env.Host.Lstat(env.Config.Paths.StaticPod(component))
	differing, err := ownership.Differing(env.Host, pending)
	if err != nil {
		return err
	}
	stale, unknown := node.StaleContainers(ctx, env, component)
	if missing != nil || len(differing) == 0 && (unknown != nil || len(stale) == 0) {
		return env.Keeper().Replace(pending)
	}
	grace := node.GraceOf(env, component) // from the static Pod it runs with
	if component == manifests.EtcdName {
		if err := checkLocalEtcdCanStop(ctx, env); err != nil {
			return err
		}
		stopEarly(ctx, env, manifests.APIServerName, node.GraceOf(env, manifests.APIServerName)) // each waits for the other
	}
	if err := env.Keeper().Replace(pending); err != nil {
		return err
	}
	stopEarly(ctx, env, component, grace)
	if err := node.RestartKubelet(ctx, env); err != nil {
		return err
	}
	// Until its restart, the kubelet may have started the old container once more, and the wait for this component would take that
	// container's failure for the new container's.
	stopEarly(ctx, env, component, grace)
	return nil
}

// stopEarly stops a component. If that fails, the kubelet does it later.
func stopEarly(ctx context.Context, env *step.Env, component string, grace time.Duration) {
	if err := node.StopContainers(ctx, env, component, grace); err != nil && ctx.Err() == nil {
		env.UI.Printf("%s takes longer to restart: %v", component, err)
	}
}
