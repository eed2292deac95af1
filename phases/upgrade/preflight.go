// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/preflight"
)

func upgradePreflight(flags []string) step.Phase {
	return step.Phase{
		Name:    "preflight",
		Summary: "Check that the upgrade can succeed, and pull its images",
		Flags:   flags,
		Run:     runUpgradePreflight,
	}
}

func runUpgradePreflight(ctx context.Context, env *step.Env) error {
	env.UI.Printf("Checking this node and its cluster")
	if env.Config.ControlPlane {
		if err := awaitServerPods(ctx, env); err != nil {
			return err
		}
		if err := backup.RemoveUnfinished(env); err != nil {
			return err
		}
	}
	checks := preflight.Upgrade(env.Config, slices.Concat([]preflight.Check{trial.NewUnfinishedCheck(env)}, upgradeQuestions(env), upgradeBreakages(ctx, env)))
	if err := node.Check(ctx, env, checks...); err != nil || !env.Config.ControlPlane {
		return err
	}
	return node.PullMissingImages(ctx, env)
}

var errNoServerPod = errors.New("the API lacks the Pod of an API server")

// awaitServerPods waits until the API has the Pod of each control plane's API server, which has the server's version. Kubelets
// need some seconds to create it. It fails only if it's interrupted; the checks report everything else.
func awaitServerPods(ctx context.Context, env *step.Env) error {
	limit := env.Config.Timeouts.KubernetesAPICall
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := false
	policy := retry.Policy{First: node.ReadyInterval, Retryable: func(err error) bool { return errors.Is(err, errNoServerPod) }}
	_ = policy.Do(limited, func(ctx context.Context) error {
		servers, err := addon.MirroredServers(ctx, env)
		if err != nil {
			return err
		}
		maps.DeleteFunc(servers, func(_ string, pod *corev1.Pod) bool { return pod != nil })
		if len(servers) == 0 {
			return nil
		}
		if !said {
			said = true
			env.UI.Printf("Waiting until the API has the Pod of the API server of %s, up to %s",
				strings.Join(slices.Sorted(maps.Keys(servers)), ", "), limit)
		}
		return errNoServerPod
	})
	return context.Cause(ctx)
}

func upgradeQuestions(env *step.Env) []preflight.Check {
	kernel := kubelet.NewKernelCheck(env)
	if !env.Config.ControlPlane {
		return []preflight.Check{kernel}
	}
	list := []preflight.Check{
		kernel,
		{Name: upgrading.SkewCheck, Description: "the cluster may be upgraded to this version", Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return versionRefusals(ctx, env) }},
		{Name: edits.StaticPodCheck, Description: "nobody has edited the static Pods, or the patches keep the edits", Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return edits.StaticPodFindings(ctx, env) }},
		node.NewPatchedImagesCheck(env),
	}
	return slices.Concat(list, etcdTagQuestions(env), othersQuestions(env))
}

// etcdTagQuestions check the version of an etcd that the upgrade replaces.
func etcdTagQuestions(env *step.Env) []preflight.Check {
	if !env.Config.Upgrade.Etcd {
		return nil
	}
	return []preflight.Check{preflight.EtcdImageTag(env.Config, " in ConfigMap kube-system/kubeadm-config; --etcd-upgrade=false leaves etcd alone")}
}

func othersQuestions(env *step.Env) []preflight.Check {
	return []preflight.Check{node.NewNodesReadyCheck(env), etcdQuorum(env, node.AwaitPeers)}
}

// versionRefusals finds reasons not to upgrade the cluster to this version. --force turns some of the errors into warnings.
func versionRefusals(ctx context.Context, env *step.Env) []fault.Finding {
	state, err := lookFromHere(ctx, env)
	if err != nil {
		return []fault.Finding{fault.Of(err)}
	}
	return upgrading.SkewQuestion(env.Config.Upgrade, state.Nodes, false).Run(ctx, env.Host)
}

// etcdQuorum checks that etcd can do without this node's member, if the upgrade restarts it. ask reports why it can't. If in doubt,
// the upgrade restarts it.
func etcdQuorum(env *step.Env, ask func(context.Context, *step.Env) error) preflight.Check {
	return node.NewQuorumCheckIf(env, func(ctx context.Context) bool {
		if node.UnlessLocalEtcd(env) != "" || !env.Config.Upgrade.Etcd {
			return false
		}
		list, err := node.Outdated(ctx, env)
		return err != nil || node.HasComponent(list, manifests.EtcdName)
	}, ask)
}
