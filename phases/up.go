// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package phases has the workflows made of others: up, which prepares a host and then runs init or join, and down, its way back.
//
// Each workflow is a list of phases that reads like a runbook; subcommands, --skip-phases, help and the timeline derive from it:
//
//	phases/bootstrap    init and join
//	phases/upgrade      upgrade apply and upgrade node
//	phases/rollback     upgrade rollback
//	phases/reconfigure  reconfigure and reconfigure node
//	phases/address      reconfigure node with another address or endpoint
//	phases/encryption   encryption enable, rotate and disable
//	phases/renew        certs renew, and the restarts of --restart
//	phases/maintenance  etcd defrag and etcd member remove
//	phases/snapshot     etcd snapshot, etcd restore and init --restore
//	phases/recovery     etcd recover
//	phases/reset        reset
//	phases/machine      host prepare and host reset
//
// These never import each other. They share phases/kubelet, phases/addon, phases/backup, phases/edits and phases/trial, which are
// made of phases/node (static Pods, the kubelet's unit, local etcd, the turn to restart a control plane) and phases/step (Env,
// Phase, Run).
// docs/design/phases-as-data.md has the reasons.
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
func Up(p *machine.Prepare, host *config.Machine) []step.Phase {
	return []step.Phase{
		workflow.Group("prepare", "Give this host everything a node needs", WithMachine(host, p.Phases())),
		workflow.Group("init", "Create a cluster with this host as its first control plane", bootstrap.InitWithJoinCommand(upCommand(p))),
		schedulable(),
		kubelet.WaitNode(),
	}
}

// upCommand returns the command for further hosts, which need a bundle if this host does, perhaps from elsewhere.
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
func UpJoin(p *machine.Prepare, host *config.Machine) []step.Phase {
	return []step.Phase{
		workflow.Group("prepare", "Give this host everything a node needs", WithMachine(host, p.Phases())),
		workflow.Group("join", "Join this host to the cluster", bootstrap.Join()),
		kubelet.WaitNode(),
	}
}

// Down undoes the node part of up.
func Down() []step.Phase {
	return []step.Phase{workflow.Group("reset", "Undo init or join on this host", reset.Node())}
}

// DownHost is Down, and undoes the preparation of the host, too.
func DownHost(host *config.Machine) []step.Phase {
	return append(Down(), workflow.Group("host", "Undo prepare on this host", WithMachine(host, machine.Reset())))
}

// WithMachine returns phases that know only a host, not a node.
func WithMachine(host *config.Machine, list []step.Phase) []step.Phase {
	return workflow.WithEnvironment(list, func(env *step.Env) *step.Env { return env.ForMachine(host) })
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
