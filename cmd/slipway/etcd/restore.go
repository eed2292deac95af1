// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

// workflow has phases to ask about first, if its summary isn't empty.
type workflow interface {
	Summary() string
	Phases() []step.Phase
}

// confirmed asks before a workflow, unless --yes was given, and runs it.
func confirmed(cmd *cobra.Command, g *cli.Globals, p *env.Parts, yes bool, w workflow) error {
	if summary := w.Summary(); !yes && summary != "" {
		err := p.Confirm(func() error { return cli.AskBefore(cmd.Context(), g, summary, "--yes") })
		if err != nil {
			p.Close()
			return err
		}
	}
	return p.Run(cmd.Context(), w.Phases(), nil)
}

func newRestore(g *cli.Globals) *cobra.Command {
	o, open := &config.RestoreFlags{}, &env.Opening{}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore etcd from a snapshot",
		Long: "Restore etcd from a snapshot, and restart this control plane with it. EVERYTHING WRITTEN SINCE THE SNAPSHOT IS LOST.\n\n" +
			"The snapshot is read first, and has to fit: this cluster's CA, this host's etcd, and the keys that Secrets are encrypted\n" +
			"with. etcd becomes a cluster of one member: with several control planes, look at the plan (--dry-run), then reset the others,\n" +
			"and join them again afterwards.\n\n" +
			"The old data stays on this host until you run `slipway etcd prune`. The same command finishes a restore that was\n" +
			"interrupted.",
		Args: cli.Takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			p.Ignore(o.IgnorePreflightErrors)
			from := snapshot.Source{File: file}
			if from.With, err = open.Identities(p.Env.Host); err != nil {
				p.Close()
				return err
			}
			r, err := snapshot.NewRestore(cmd.Context(), p.Env, from)
			if err != nil {
				p.Close()
				return err
			}
			return confirmed(cmd, g, p, o.Yes || r.Blocked(), r)
		},
	}
	config.Bind(cmd.Flags(), "etcd restore", o)
	open.Bind(cmd.Flags())
	env.Reporting(g, cmd)
	return cmd
}

func newPruneData(g *cli.Globals) *cobra.Command {
	o := &config.RemovalFlags{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove etcd's former data, set aside by a restore, recovery or rollback",
		Long: "Remove the data that etcd had before `slipway etcd restore`, `slipway etcd recover` or\n" +
			"`slipway upgrade rollback --restore-etcd`.\n\n" +
			"It stays while this host's etcd does not work, or while such a command was interrupted. `slipway etcd snapshot prune`\n" +
			"removes old snapshots.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			old, err := snapshot.NewPruneData(cmd.Context(), p.Env)
			if err != nil {
				p.Close()
				return err
			}
			return confirmed(cmd, g, p, o.Yes, old)
		},
	}
	config.Bind(cmd.Flags(), "etcd prune", o)
	env.Reporting(g, cmd)
	return cmd
}
