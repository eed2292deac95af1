// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases"
)

func newUpgrade(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Upgrade a cluster to another version of Kubernetes",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newUpgradeApply(g), newUpgradeNode(g), newUpgradePlan(g), newUpgradeDiff(g), newUpgradeRollback(g))
	return cmd
}

func newUpgradeApply(g *globals) *cobra.Command {
	u := upgradeCommand{name: "apply", workflow: phases.UpgradeApply}
	return u.command(g, "apply [VERSION]", "Upgrade the cluster, beginning with this control plane",
		"Upgrade the cluster to VERSION, beginning with this control plane. Run `upgrade node` on each other node afterwards.", 1)
}

func newUpgradeNode(g *globals) *cobra.Command {
	u := upgradeCommand{name: "node", workflow: phases.UpgradeNode}
	return u.command(g, "node", "Upgrade this node to the version of the cluster",
		"Upgrade this node to the version that `upgrade apply` has upgraded the cluster to.", 0)
}

// upgradeCommand is one of the commands that upgrade a node.
type upgradeCommand struct {
	name     string
	workflow func() []phases.Phase
}

func (u upgradeCommand) path() string { return "upgrade " + u.name }

func (u upgradeCommand) command(g *globals, use, short, long string, arguments int) *cobra.Command {
	o := &upgradeOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long + "\n\nIt runs these phases in order; `" + u.path() + " phase NAME` runs one alone:\n" + phaseTree(u.workflow(), "  "),
		Args:  takes(0, arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := u.load(cmd, g, o, args)
			if err != nil {
				return err
			}
			if err := confirmUpgrade(cmd.Context(), g, p); err != nil {
				return err
			}
			if g.asPeer() {
				p.last = upgradedLines(p.env.Config)
			}
			return p.run(cmd.Context(), u.workflow(), p.env.Config.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), u.path())
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, u.path(), u.workflow(), u.phase))
	return cmd
}

func (u upgradeCommand) phase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &upgradeOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: p.Summary,
		Args:  takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Drain = p.Name == "drain" || p.Name == "uncordon" // their own commands need no flag to ask for it
			parts, err := u.load(cmd, g, o, args)
			if err != nil {
				return err
			}
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.BindPhase(cmd.Flags(), u.path(), phaseFlags(p.Flags))
	reporting(g, cmd)
	return cmd
}

// load reads what the cluster and this host say of the node, and makes the parts to work with.
func (u upgradeCommand) load(cmd *cobra.Command, g *globals, o *upgradeOptions, args []string) (*parts, error) {
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
	in.keepMode(node)
	if path := kubeconfigFlag(cmd); path != "" {
		node.Paths.AdminKubeconfig = path
	}
	p := newParts(g, node, in.host)
	warn(p.env.UI, in.warnings)
	return p, nil
}

// upgradeInput is what the command line and the configuration file say of an upgrade.
type upgradeInput struct {
	*nodeInput
	self     *config.UpgradeSelf
	warnings []string
}

// read reads the input of a command such as "upgrade apply".
func (o *upgradeOptions) read(cmd *cobra.Command, g *globals, command string, args []string) (*upgradeInput, error) {
	o.Given = given(cmd.Flags())
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	self, warnings, err := config.LoadUpgrade(cmd.Context(), in.file, o.Flags, command, firstOf(args), in.options)
	return &upgradeInput{in, self, warnings}, err
}

// node is what this node is to be after the upgrade. It adds warnings about what the cluster stores.
func (in *upgradeInput) node(cmd *cobra.Command, g *globals) (*config.Node, error) {
	if in.self.First && in.self.Version == "" {
		return nil, errors.Errorf("%s needs the version to upgrade to, such as %s", cmd.CommandPath(), config.DefaultKubernetesVersion)
	}
	if in.self.First && !thisnode.IsControlPlane(in.host) {
		return nil, fault.New("this host is not a control plane: it has no static Pod of an API server", "run this on a control plane; `slipway upgrade node` is for this host")
	}
	node, warnings, err := upgrading.Node(cmd.Context(), in.cluster(cmd), in.host, newUI(g).Printf, in.self, in.options)
	in.warnings = append(in.warnings, warnings...)
	return node, err
}

func (in *upgradeInput) cluster(cmd *cobra.Command) *cluster.Real {
	return clusterOfNode(in.host, kubeconfigFlag(cmd), in.self.Timeouts.KubernetesAPICall.Duration)
}

// printStored prints the configuration that the upgrade starts from, if that is asked for. Standard output is for events, or a
// plan, if a program reads it.
func (in *upgradeInput) printStored(cmd *cobra.Command, g *globals) error {
	if !in.self.PrintConfig {
		return nil
	}
	stored, err := joining.StoredConfiguration(cmd.Context(), in.cluster(cmd))
	if err != nil {
		return err
	}
	out := g.streams.out
	if g.report != nil && g.report.form != "text" {
		out = g.streams.err
	}
	return printStored(out, stored)
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// clusterOfNode is the cluster of this node as its administrator sees it, or, on a worker, as its kubelet does.
func clusterOfNode(real *host.Real, kubeconfig string, limit time.Duration) *cluster.Real {
	if kubeconfig == "" {
		kubeconfig = config.DefaultAdminKubeconfig
		if !thisnode.IsControlPlane(real) {
			kubeconfig = "/etc/kubernetes/kubelet.conf"
		}
	}
	return cluster.New(cluster.Options{
		Kubeconfig: kubeconfig,
		ReadFile:   kubeconfigReader(real, "run this on a node of the cluster, or name a kubeconfig file with --kubeconfig"),
		Timeout:    limit,
	})
}

// confirmUpgrade asks whether to go on, unless --yes or --force is given.
func confirmUpgrade(ctx context.Context, g *globals, p *parts) error {
	u := p.env.Config.Upgrade
	if !u.First || u.Yes || u.Force {
		return nil
	}
	return p.confirm(func() error {
		text := fmt.Sprintf("This upgrades the cluster from %s to %s, beginning with this control plane.", u.From, u.Version)
		if oneWay := phases.OneWay(p.env); oneWay != "" {
			text += "\n" + oneWay
		}
		return askBefore(ctx, g, text, "--yes")
	})
}
