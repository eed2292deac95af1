// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases"
)

// parts are what a command works with: the environment of its phases, and around it what a run and a dry run do
// differently. There are three constructors: newRealParts, newPlanParts and newAPIParts.
type parts struct {
	env *phases.Env
	// begin takes what a run needs for itself; end gives it back.
	begin func() (end func(), err error)
	// confirm asks the user before something that cannot be undone.
	confirm func(ask func() error) error
	// show prints the outcome: the result of the command, or the plan.
	show func(result func() error) error
	// close ends the connections to this host's services.
	close func()
	// serial runs phases one after another.
	serial bool
	// last are the lines that scripts of kubeadm's users expect at the end of a run.
	last []string
}

// run runs a workflow that has no other result to print than what its phases print.
func (p *parts) run(ctx context.Context, workflow []phases.Phase, skip []string) error {
	defer p.close()
	end, err := p.begin()
	if err != nil {
		return err
	}
	defer end()
	if err := phases.Run(ctx, p.env, workflow, phases.Options{Skip: skip, Serial: p.serial}); err != nil {
		return err
	}
	return p.show(p.tellLast)
}

func (p *parts) tellLast() error {
	for _, line := range p.last {
		p.env.UI.Result(line)
	}
	return nil
}

// mode is how a command goes about its work: acting does it, planning only shows it. This file alone chooses between
// the two; a command asks the mode for what it needs. TestOnlyEnvAsksForDryRun checks that.
type mode interface {
	// options are what loading a configuration needs from outside.
	options(config.HostFacts) config.Options
	// checkReport rejects flags of a report that make no sense in this mode.
	checkReport(*report) error
	// sinks are where a report sends progress.
	sinks(*report) sinks
	// discover returns the node that self describes, as part of its cluster.
	discover(ctx context.Context, real *host.Real, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// joined returns the control plane that self describes, once discovery is over and admin.conf is written.
	joined(ctx context.Context, real *host.Real, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// stored is the configuration of the cluster that this host belongs to, or the default one with a warning.
	stored(ctx context.Context, real *host.Real) ([]byte, []string, error)
	// parts are for a workflow on this host.
	parts(*config.Node, *host.Real) *parts
	// apiParts are for a command that only talks to the API; form and command are for its plan.
	apiParts(node *config.Node, kubeconfig userKubeconfig, form, command string) (*parts, error)
}

func modeOf(g *globals, dryRun bool) mode {
	if dryRun {
		return planning{g, g.report != nil && g.report.diff}
	}
	return acting{g}
}

// modeOfFlags is the mode that the command line asks for. Commands without --dry-run always act.
func modeOfFlags(g *globals, cmd *cobra.Command) mode {
	dryRun, err := cmd.Flags().GetBool("dry-run")
	return modeOf(g, err == nil && dryRun)
}

// modeOfJoin is the mode that the flags and the configuration file of a join ask for.
func modeOfJoin(g *globals, self *config.JoinConfiguration) mode { return modeOf(g, self.DryRun) }

// newParts are the parts for node in the mode that the flags and the configuration file ask for.
func newParts(g *globals, node *config.Node, real *host.Real) *parts {
	return modeOf(g, node.DryRun).parts(node, real)
}

// askForPlan makes other flags imply --dry-run.
func askForPlan(fs *pflag.FlagSet) error { return fs.Set("dry-run", "true") }

// keepMode copies --dry-run to a configuration that was not loaded from the flags.
func (o *joinOptions) keepMode(self *config.JoinConfiguration) { keepMode(o.Flags, self) }

func keepMode(flags config.Flags, self *config.JoinConfiguration) { self.DryRun = flags.DryRun }

// keepModeOf copies --dry-run from a host to the control plane that it is.
func keepModeOf(host, node *config.Node) { node.DryRun = host.DryRun }

// keepMode copies --dry-run, or what the configuration file says instead, to a node that was made of the cluster's
// configuration.
func (in *upgradeInput) keepMode(node *config.Node) { node.DryRun = in.self.DryRun }

// ignoreFilesMode makes a command without --dry-run act even if its configuration file asks `init` for a plan.
func (o *initOptions) ignoreFilesMode(fs *pflag.FlagSet) {
	if fs.Lookup("dry-run") == nil {
		o.Given = append(o.Given, "dry-run")
	}
}
