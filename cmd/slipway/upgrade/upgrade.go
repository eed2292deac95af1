// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade has the command `upgrade`.
package upgrade

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/upgrade"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("upgrade", "Upgrade a cluster to another version of Kubernetes",
		newApply(g), newNode(g), newPlan(g), newDiff(g), newRollback(g))
}

func newApply(g *cli.Globals) *cobra.Command {
	u := command{name: "apply", workflow: upgrade.Apply}
	return u.command(g, "apply [VERSION]", "Upgrade the cluster, beginning with this control plane",
		"Upgrade the cluster to VERSION, beginning with this control plane. Run `upgrade node` on each other node afterwards.", 1)
}

func newNode(g *cli.Globals) *cobra.Command {
	u := command{name: "node", workflow: upgrade.Node}
	return u.command(g, "node", "Upgrade this node to the version of the cluster",
		"Upgrade this node to the version that `upgrade apply` has upgraded the cluster to.", 0)
}

type command struct {
	name     string
	workflow func() []step.Phase
}

func (u command) path() string { return "upgrade " + u.name }

func (u command) command(g *cli.Globals, use, short, long string, arguments int) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  cli.Takes(0, arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := u.load(cmd, g, o, args)
			if err != nil {
				return err
			}
			if err := confirmUpgrade(cmd.Context(), g, p); err != nil {
				return err
			}
			if g.AsPeer() {
				p.Last = cli.UpgradedLines(p.Env.Config)
			}
			return p.Run(cmd.Context(), u.workflow(), p.Env.Config.SkipPhases)
		},
	}
	env.Workflow{Name: u.path(), Phases: u.workflow(), Single: u.phase}.AddTo(cmd, g, &o.UpgradeFlags)
	return cmd
}

func (u command) phase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &options{}
	cmd := p.Command(g, &o.UpgradeFlags, func(cmd *cobra.Command, args []string) error {
		o.Drain = p.Name == "drain" || p.Name == "uncordon" // their own commands need no flag to ask for it
		parts, err := u.load(cmd, g, o, args)
		if err != nil {
			return err
		}
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
	cmd.Args = cli.Takes(0, 1)
	return cmd
}

// load makes the node from the cluster's configuration and this host's files, and its parts.
func (u command) load(cmd *cobra.Command, g *cli.Globals, o *options, args []string) (*env.Parts, error) {
	in, err := o.read(cmd, g, u.path(), args)
	if err != nil {
		return nil, err
	}
	node, err := in.node(cmd, g)
	if err != nil {
		return nil, err
	}
	if err := in.printStored(cmd, g); err != nil {
		return nil, err
	}
	return env.NewParts(g, env.KeepModeOfUpgrade(in.self, node), in.Host, in.warnings...), nil
}
