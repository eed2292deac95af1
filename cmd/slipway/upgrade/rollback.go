// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/rollback"
)

func newRollback(g *cli.Globals) *cobra.Command {
	o := &config.RollbackFlags{}
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Put this node back to its state before its last upgrade",
		Long: "Put this node back to its state before its last upgrade: static Pods and kubelet settings come from the backup that the\n" +
			"upgrade made. This also works when the API server is down.\n\n" +
			"A newer minor version of etcd stays, because an older one may not start with its data. With --restore-etcd, both go back:\n" +
			"the snapshot from before the upgrade is restored, and everything written to the cluster since then is lost. With\n" +
			"several control planes, reset the others first and join them again afterwards.\n\n" +
			"The same command finishes a rollback that was interrupted.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, rollback, err := loadRollback(cmd, g, o)
			if err != nil {
				return err
			}
			if !o.Yes {
				err = p.Confirm(func() error { return cli.AskBefore(cmd.Context(), g, rollback.Summary(), "--yes") })
			}
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), rollback.Phases(), nil)
		},
	}
	config.Bind(cmd.Flags(), "upgrade rollback", o)
	env.Reporting(g, cmd)
	return cmd
}

func loadRollback(cmd *cobra.Command, g *cli.Globals, o *config.RollbackFlags) (*env.Parts, *rollback.Rollback, error) {
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), "")
	if err != nil {
		return nil, nil, err
	}
	root := filepath.Join(config.DefaultKubernetesDir, "tmp")
	progress, err := upgrading.ReadProgress(in.Host, root)
	if err != nil {
		return nil, nil, err
	}
	backup, err := upgrading.LastBackup(in.Host, root, progress)
	if err != nil {
		return nil, nil, err
	}
	if backup == nil {
		return nil, nil, fault.New("there is no backup of an upgrade in "+root, "only a node that was upgraded can go back")
	}
	self := thisnode.Current(in.Host)
	env.KeepMode(cmd, self)
	self.NodeRegistration.IgnorePreflightErrors = o.IgnorePreflightErrors
	in.Options.Kubeconfig = env.KubeconfigFlag(cmd)
	api := env.ClusterOfNode(in.Host, in.Options.Kubeconfig, env.AskTimeout)
	node, warnings, err := upgrading.Source{API: api, Host: in.Host, Options: in.Options}.NodeBefore(cmd.Context(), backup, self)
	if err != nil {
		return nil, nil, err
	}
	p := env.NewParts(g, node, in.Host, warnings...)
	rollback, err := rollback.New(cmd.Context(), p.Env, rollback.Options{Backup: backup, Progress: progress, RestoreEtcd: o.RestoreEtcd})
	return p, rollback, err
}
