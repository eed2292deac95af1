// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func markControlPlane() step.Phase {
	return step.Phase{
		Name:    "mark-control-plane",
		Summary: "Label and taint this node as a control plane",
		Flags:   []string{"config", "dry-run", "node-name"},
		Run:     runMarkControlPlane,
	}
}

// registrationTimeout is how long a kubelet may take to register its Node once the API server answers: it retries every seven
// seconds at most.
const registrationTimeout = 15 * time.Second

func runMarkControlPlane(ctx context.Context, env *step.Env) error {
	n := env.Config
	env.UI.Printf("Marking node %s as a control plane, with %d taints", n.Name, len(n.Taints))
	failure := "node " + n.Name + " cannot be marked"
	err := env.Guard(ctx, &n.Timeouts.KubeletHealthCheck, env.NodeTarget(), failure, func(ctx context.Context) error {
		if err := env.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		if err := allowKubelets(ctx, env); err != nil {
			return err
		}
		mark := node.ControlPlaneMark(n)
		marked, err := marksKept(ctx, env, mark)
		if err != nil {
			return err
		}
		if marked {
			mark = cluster.Mark{}
		}
		return markRegistered(ctx, env, mark)
	})
	if err != nil {
		return err
	}
	return env.Host.Remove(thisnode.JoinUnfinished(n)) // a join may skip wait-control-plane
}

// allowKubelets lets a joining node's API server use the kubelets' API. Clusters made by kubeadm before 1.35.5 or 1.36.1 lack the
// binding: their API servers' certificates have a group with that right. An edited binding stays.
func allowKubelets(ctx context.Context, env *step.Env) error {
	if env.Config.Join == nil { // bootstrap-token creates it
		return nil
	}
	binding := manifests.KubeletAPIAdmin()
	if d, err := env.Cluster.Compare(ctx, binding); err != nil || d.Change != cluster.Create {
		return err
	}
	env.UI.Printf("Allowing API servers to use the kubelets' API, for logs and metrics")
	return env.Cluster.Ensure(ctx, binding)
}

// marksKept reports whether an earlier run has marked the Node. A taint or label that an administrator has removed since, so that
// other Pods run there, stays removed.
func marksKept(ctx context.Context, env *step.Env, mark cluster.Mark) (bool, error) {
	if !env.Rerun {
		return false, nil
	}
	live := cluster.NewNode(env.Config.Name)
	if _, err := env.Cluster.Get(ctx, live); err != nil {
		return false, err
	}
	if _, marked := live.Labels[cluster.LabelControlPlane]; !marked {
		return false, nil
	}
	if lacks := node.MarkNames(node.MarkLacking(live, mark)); len(lacks) > 0 {
		writer := "init phase mark-control-plane"
		if env.Config.Join != nil {
			writer = "join phase control-plane-join mark-control-plane"
		}
		ui.SayKept(env.UI, ui.Kept{Kind: "Node", Name: live.Name, Summary: "without " + strings.Join(lacks, ", "),
			Remedy: fmt.Sprintf("to add it, run `slipway %s` with this run's configuration (--config)", writer), Ours: strings.Join(lacks, "\n") + "\n"})
	}
	return true, nil
}

// markRegistered marks this node. When init runs again, the Node may have been deleted while its kubelet was running, so it
// restarts the kubelet if the Node is missing.
func markRegistered(ctx context.Context, env *step.Env, mark cluster.Mark) error {
	if !env.Rerun {
		return env.Cluster.MarkNode(ctx, env.Config.Name, mark)
	}
	early, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	err := env.Cluster.MarkNode(early, env.Config.Name, mark)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	if err := kubelet.RestartUnregistered(ctx, env, "because it registers its Node only when it starts"); err != nil {
		return err
	}
	return env.Cluster.MarkNode(ctx, env.Config.Name, mark)
}
