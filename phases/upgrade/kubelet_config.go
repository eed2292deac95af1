// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/step"
)

func upgradeKubeletConfig() step.Phase {
	return step.Phase{
		Name:    "kubelet-config",
		Summary: "Update the kubelet's settings on this node, for its next start",
		Flags:   []string{"config", "dry-run", "kubeconfig", "patches"},
		Run:     runUpgradeKubeletConfig,
	}
}

// runUpgradeKubeletConfig doesn't restart the kubelet: usually, a newer kubelet is installed next.
func runUpgradeKubeletConfig(_ context.Context, env *step.Env) error {
	if err := refuseUnfinishedChange(env); err != nil {
		return err
	}
	next, err := kubelet.NextFiles(env)
	if err != nil {
		return err
	}
	files, err := ownership.Differing(env.Host, next)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return recordUpgrade(env, next)
	}
	if err := backup.Kubelet(env, files); err != nil {
		return err
	}
	if err := env.Keeper().Replace(files); err != nil {
		return err
	}
	return kubelet.EnsureTemporaryPair(env)
}

// recordUpgrade backs up files that already have the new content: otherwise, a rollback would take an earlier upgrade's backup for
// this one's.
func recordUpgrade(env *step.Env, files []ownership.File) error {
	last, _, err := backup.LastUpgrade(env)
	if err != nil || last == nil || last.To == "" || last.To == env.Config.Cluster.KubernetesVersion {
		return err
	}
	return backup.Kubelet(env, files)
}
