// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// socketAnnotation is where kubeadm kept the runtime's socket until 1.36; it's in instance-config.yaml since.
const socketAnnotation = "kubeadm.alpha.kubernetes.io/cri-socket"

func postUpgrade() step.Phase {
	return step.Phase{
		Name:    "post-upgrade",
		Summary: "Remove leftovers of older versions, renew the kubelet's serving certificate, and show the next steps",
		Flags:   common,
		Run:     runPostUpgrade,
	}
}

func runPostUpgrade(ctx context.Context, env *step.Env) error {
	node := cluster.NewNode(env.Config.Name)
	_, err := env.Cluster.Update(ctx, node, func() (bool, error) {
		_, found := node.Annotations[socketAnnotation]
		delete(node.Annotations, socketAnnotation)
		return found, nil
	})
	if err != nil {
		return err
	}
	if err := env.Host.Remove(thisnode.JoinUnfinished(env.Config)); err != nil { // the upgrade has seen the components healthy
		return err
	}
	if err := completeUpgrade(env); err != nil {
		return errors.WithMessage(err, "cannot record that the upgrade is complete, so a later rollback may go back to before it")
	}
	if err := kubelet.RenewServing(ctx, env); err != nil {
		return err
	}
	version := env.Config.Cluster.KubernetesVersion
	if env.Config.ControlPlane {
		env.UI.Nextf("This control plane runs Kubernetes %s", version)
	}
	env.UI.Nextf("If this node's kubelet is older than %[1]s, install kubelet %[1]s, and restart it: systemctl daemon-reload && systemctl restart kubelet", version)
	if env.Config.Upgrade.First {
		env.UI.Nextf("Then run `slipway upgrade node` on the other nodes, control planes first, one at a time")
	}
	return nil
}

// completeUpgrade records that this upgrade is complete. The next run, even to the same version, makes its own backup.
func completeUpgrade(env *step.Env) error {
	progress, err := upgrading.ReadProgress(env.Host, node.BackupRoot(env))
	if err != nil {
		return err
	}
	backup, err := upgrading.LastBackup(env.Host, node.BackupRoot(env), progress)
	if err != nil || backup == nil || backup.To != env.Config.Cluster.KubernetesVersion || !progress.Finished.Before(backup.Began) {
		return err // nothing was replaced, or a rollback has run since
	}
	if err := backup.Complete(env.Host); err != nil {
		return err
	}
	return endSuperseded(env, progress, backup)
}

// endSuperseded ends a rollback that was interrupted before this upgrade replaced static Pods: nobody can go on with it, so nothing should
// wait for it.
func endSuperseded(env *step.Env, rollback upgrading.Progress, by *upgrading.Backup) error {
	if rollback.Began.IsZero() || !rollback.Finished.IsZero() || rollback.IsOf(by) {
		return nil
	}
	root := node.BackupRoot(env)
	last, err := upgrading.LastBackupTime(env.Host, root)
	if err != nil {
		return err
	}
	rollback.Finish(env.Host.Now(), last)
	return rollback.Write(env.Host, root)
}
