// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package upgrade has the command `upgrade`: plan and diff show an upgrade, apply runs it on the first control plane, node on
// every other node, and rollback undoes it on this node. internal/upgrading makes the plan, phases/upgrade and phases/rollback run
// it.
package upgrade

import (
	"context"
	"fmt"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
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
		"Upgrade this node to the version of the cluster, once `upgrade apply` has run on a control plane.", 0)
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
			if g.EmulatesKubeadm() {
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

type options struct{ config.UpgradeFlags }

type input struct {
	*env.Input
	self     *config.UpgradeSelf
	warnings []string
}

func (o *options) read(cmd *cobra.Command, g *cli.Globals, command string, args []string) (*input, error) {
	o.Given, o.Command, o.Version = cli.Given(cmd.Flags()), command, firstOf(args)
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	in.Options.Kubeconfig = env.KubeconfigFlag(cmd)
	self, warnings, err := config.LoadUpgrade(cmd.Context(), in.File, o.UpgradeFlags, in.Options)
	return &input{in, self, warnings}, err
}

// node is this node's desired state after the upgrade. It adds warnings about the stored configuration.
func (in *input) node(cmd *cobra.Command, g *cli.Globals) (*config.Node, error) {
	if in.self.First && in.self.Version == "" {
		return nil, errors.Errorf("%s needs the version to upgrade to, such as %s", cmd.CommandPath(), config.DefaultKubernetesVersion)
	}
	if in.self.First && !thisnode.IsControlPlane(in.Host) {
		return nil, fault.New("this host is not a control plane: it has no static Pod of an API server", "run this on a control plane; `slipway upgrade node` is for this host")
	}
	from := upgrading.Source{API: in.cluster(), Host: in.Host, Options: in.Options, Say: cli.NewUI(g).Printf}
	node, warnings, err := from.Node(cmd.Context(), in.self)
	in.warnings = append(in.warnings, warnings...)
	return node, err
}

func (in *input) cluster() *cluster.Real {
	return env.ClusterOfNode(in.Host, in.Options.Kubeconfig, in.self.Timeouts.KubernetesAPICall.Duration)
}

// printStored prints the configuration the upgrade starts from, if asked to: on standard error if programs read standard output.
func (in *input) printStored(cmd *cobra.Command, g *cli.Globals) error {
	if !in.self.PrintConfig {
		return nil
	}
	stored, err := joining.StoredConfiguration(cmd.Context(), in.cluster())
	if err != nil {
		return err
	}
	out := g.Streams.Out
	if g.Report != nil && g.Report.Form != "text" {
		out = g.Streams.Err
	}
	return upgrading.PrintStored(out, stored)
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// confirmUpgrade asks whether to proceed, unless --yes or --force is given.
func confirmUpgrade(ctx context.Context, g *cli.Globals, p *env.Parts) error {
	u := p.Env.Config.Upgrade
	if !u.First || u.Yes || u.Force {
		return nil
	}
	return p.Confirm(func() error {
		text := fmt.Sprintf("This upgrades the cluster from %s to %s, beginning with this control plane.", u.From, u.Version)
		if oneWay := upgrade.IrreversibleEffects(p.Env); oneWay != "" {
			text += "\n" + oneWay
		}
		return cli.AskBefore(ctx, g, text, "--yes")
	})
}
