// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/internal/workflow"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Up makes a bare host the first node of a new cluster. host is the desired state to prepare it for.
func Up(p *machine.Prepare, host *config.Node) []step.Phase {
	return []step.Phase{
		workflow.Group("prepare", "Give this host everything a node needs", GoingBy(host, p.Phases())),
		workflow.Group("init", "Create a cluster with this host as its first control plane", bootstrap.InitThen(upCommand(p))),
		schedulable(),
		kubelet.WaitNode(),
	}
}

// upCommand returns the command for further hosts, which need a bundle if this one does, perhaps from elsewhere.
func upCommand(p *machine.Prepare) string {
	if p.BundleFile == "" {
		return "up"
	}
	command := "up --bundle " + upgrading.Quoted(p.BundleFile)
	if p.BundleDigest != "" {
		command += " --digest " + upgrading.Quoted(p.BundleDigest)
	}
	return command
}

// UpJoin makes a bare host a node of an existing cluster.
func UpJoin(p *machine.Prepare, host *config.Node) []step.Phase {
	return []step.Phase{
		workflow.Group("prepare", "Give this host everything a node needs", GoingBy(host, p.Phases())),
		workflow.Group("join", "Join this host to the cluster", bootstrap.Join()),
		kubelet.WaitNode(),
	}
}

// Down undoes the node part of up.
func Down() []step.Phase {
	return []step.Phase{workflow.Group("reset", "Undo what init or join did to this host", reset.Node())}
}

// DownHost is Down, and undoes the preparation of the host, too.
func DownHost(host *config.Node) []step.Phase {
	return append(Down(), workflow.Group("host", "Undo what prepare did to this host", GoingBy(host, machine.Reset())))
}

// GoingBy returns phases that use a host's desired state instead of a node's.
func GoingBy(host *config.Node, list []step.Phase) []step.Phase {
	return workflow.In(list, func(env *step.Env) *step.Env {
		there := *env
		there.Config = host
		return &there
	})
}

// schedulable removes the taint that an earlier run without --schedulable gave the Node; this run gives it none.
func schedulable() step.Phase {
	return step.Phase{
		Name:    "schedulable",
		Summary: "Let ordinary Pods run on this control plane",
		Skip: func(env *step.Env) string {
			if !env.Config.Schedulable {
				return "--schedulable is not given"
			}
			return ""
		},
		Run: func(ctx context.Context, env *step.Env) error {
			live := cluster.NewNode(env.Config.Name)
			_, err := env.Cluster.Update(ctx, live, func() (bool, error) {
				var kept []corev1.Taint
				for _, t := range live.Spec.Taints {
					if t.Key != cluster.LabelControlPlane {
						kept = append(kept, t)
					}
				}
				if len(kept) == len(live.Spec.Taints) {
					return false, nil
				}
				env.UI.Printf("Taking taint %s from node %s", cluster.LabelControlPlane, live.Name)
				live.Spec.Taints = kept
				return true, nil
			})
			return err
		},
	}
}
