// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases"
)

func newUpgradeRollback(g *globals) *cobra.Command {
	o := &upgradeOptions{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Put this node back to what it was before its last upgrade",
		Long: "Put this node back to what it was before its last upgrade: static Pods and kubelet settings come from the backup that the\n" +
			"upgrade made. This also works when the API server is down.\n\n" +
			"A newer minor version of etcd stays, because an older one may not start with its data. With --restore-etcd, both go back:\n" +
			"the snapshot from before the upgrade is restored, and everything that was written to the cluster since then is lost. With\n" +
			"several control planes, reset the others first and join them again afterwards.\n\n" +
			"The same command finishes a rollback that was interrupted.",
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, rollback, err := loadRollback(cmd, g, o)
			if err != nil {
				return err
			}
			if err := confirmRollback(cmd.Context(), g, o, p, rollback); err != nil {
				return err
			}
			return p.run(cmd.Context(), rollback.Phases(), nil)
		},
	}
	o.Bind(cmd.Flags(), "upgrade rollback")
	reporting(g, cmd)
	return cmd
}

// loadRollback reads the backup of the last upgrade.
func loadRollback(cmd *cobra.Command, g *globals, o *upgradeOptions) (*parts, *phases.Rollback, error) {
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), "")
	if err != nil {
		return nil, nil, err
	}
	root := filepath.Join(config.DefaultKubernetesDir, "tmp")
	progress, err := upgrading.ReadProgress(in.host, root)
	if err != nil {
		return nil, nil, err
	}
	backup, err := upgrading.LastBackup(in.host, root, progress)
	if err != nil {
		return nil, nil, err
	}
	if backup == nil {
		return nil, nil, fault.New("there is no backup of an upgrade in "+root, "only a node that was upgraded can go back")
	}
	self := thisnode.Current(in.host)
	keepMode(o.Flags, self)
	api := clusterOfNode(in.host, kubeconfigFlag(cmd), askTime)
	node, warnings, err := upgrading.NodeBefore(cmd.Context(), api, in.host, backup, self, in.options)
	if err != nil {
		return nil, nil, err
	}
	if path := kubeconfigFlag(cmd); path != "" {
		node.Paths.AdminKubeconfig = path
	}
	node.IgnorePreflightErrors = o.IgnorePreflightErrors
	p := newParts(g, node, in.host)
	warn(p.env.UI, warnings)
	rollback, err := phases.NewRollback(cmd.Context(), p.env, phases.RollbackOptions{Backup: backup, Progress: progress, RestoreEtcd: o.RestoreEtcd})
	return p, rollback, err
}

// confirmRollback asks for confirmation, unless --yes is given.
func confirmRollback(ctx context.Context, g *globals, o *upgradeOptions, p *parts, rollback *phases.Rollback) error {
	if o.Yes {
		return nil
	}
	return p.confirm(func() error { return askBefore(ctx, g, rollback.Summary(), "--yes") })
}
