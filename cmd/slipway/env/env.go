// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package env gives commands the parts to work with. env.go alone chooses between real and planned parts. The other files make
// them, load their configuration, and make the commands of workflows and of their phases.
package env

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Parts are a command's tools: the environment of its phases, and around it the differences between a run and a dry run. Acting.Parts act, Planning.Parts only record, and NewAPIParts have only the API.
type Parts struct {
	Env *step.Env
	// begin takes the lock of this node; end releases it.
	begin func() (end func(), err error)
	// Confirm asks the user before something that can't be undone.
	Confirm func(ask func() error) error
	// Show prints the outcome: the result of the command, or the plan.
	Show func(result func() error) error
	// Close ends the connections to this host's services.
	Close func()
	// serial runs phases one after another.
	serial bool
	// Last are the lines that scripts of kubeadm's users expect at the end of a run.
	Last []string
}

// Run runs a workflow whose phases print all of its result.
func (p *Parts) Run(ctx context.Context, workflow []step.Phase, skip []string) error {
	defer p.Close()
	end, err := p.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := step.Run(ctx, p.Env, workflow, step.Options{Skip: skip, Serial: p.serial}); err != nil {
		return err
	}
	return p.Show(p.TellLast)
}

// TellLast prints the last lines.
func (p *Parts) TellLast() error {
	for _, line := range p.Last {
		p.Env.UI.Result(line)
	}
	return nil
}

// Mode is how a command goes about its work: Acting does it, Planning only shows it. This file alone chooses between the two,
// and a command asks its mode for anything that differs. TestOnlyEnvAsksForDryRun checks that.
type Mode interface {
	// Options are for loading a configuration.
	Options(config.HostFacts) config.Options
	// checkReport rejects flags of a report that make no sense in this mode.
	checkReport(*cli.Report) error
	// sinks are where a report sends progress.
	sinks(*cli.Report) cli.Sinks
	// Discover returns the node that self describes, as part of its cluster.
	Discover(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// Joined returns the control plane that self describes, once discovery is over and admin.conf is written.
	Joined(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// Stored is the configuration of the cluster that this host belongs to, or the default one with a warning.
	Stored(ctx context.Context, real *linux.Host) ([]byte, []string, error)
	// Parts are for a workflow on this host.
	Parts(*config.Node, *linux.Host) *Parts
	// APIParts are for a command that only talks to the API; form and command are for its plan.
	APIParts(node *config.Node, kubeconfig UserKubeconfig, form, command string) (*Parts, error)
}

func modeOf(g *cli.Globals, dryRun bool) Mode {
	if dryRun {
		return Planning{G: g, Diff: g.Report != nil && g.Report.Diff}
	}
	return Acting{g}
}

// ModeOfFlags is the mode that the command line asks for. Commands without --dry-run always act.
func ModeOfFlags(g *cli.Globals, cmd *cobra.Command) Mode {
	dryRun, err := cmd.Flags().GetBool("dry-run")
	return modeOf(g, err == nil && dryRun)
}

// ModeOfJoin is the mode that the flags and the configuration file of a join ask for.
func ModeOfJoin(g *cli.Globals, self *config.JoinConfiguration) Mode { return modeOf(g, self.DryRun) }

// NewParts are the parts for node in the mode that the flags and the configuration file ask for. It shows warnings about them.
func NewParts(g *cli.Globals, node *config.Node, real *linux.Host, warnings ...string) *Parts {
	p := modeOf(g, node.DryRun).Parts(node, real)
	cli.Warn(p.Env.UI, warnings)
	return p
}

// askForPlan makes other flags imply --dry-run.
func askForPlan(fs *pflag.FlagSet) error { return fs.Set("dry-run", "true") }

// KeepMode copies --dry-run to a configuration that wasn't loaded from the flags.
func KeepMode(flags config.Flags, self *config.JoinConfiguration) { self.DryRun = flags.DryRun }

// KeepModeOf copies --dry-run from a host to the control plane that it is.
func KeepModeOf(host, node *config.Node) { node.DryRun = host.DryRun }

// KeepModeOfUpgrade copies --dry-run, or the configuration file's dryRun, to a node made of the cluster's configuration.
func KeepModeOfUpgrade(self *config.UpgradeSelf, node *config.Node) { node.DryRun = self.DryRun }

// ignoreFilesMode makes a command without --dry-run act even if its configuration file asks `init` for a plan.
func (o *InitOptions) ignoreFilesMode(fs *pflag.FlagSet) {
	if fs.Lookup("dry-run") == nil {
		o.Given = append(o.Given, "dry-run")
	}
}
