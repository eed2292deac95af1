// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package env stands between a command and its phases. A Mode (Acting or Planning, chosen only in env.go) makes the Parts of a
// command: an environment for phases with the real host, API and etcd, or with recorders in their place. LoadInit and ReadInput
// load the configuration, and Workflow makes the commands of a list of phases.
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

// Parts are a command's tools: its phases' environment, and the differences between a run and a dry run. Acting.Parts act,
// Planning.Parts only record, and NewAPIParts have only the API.
type Parts struct {
	Env *step.Env
	// begin takes this node's lock; end releases it.
	begin func() (end func(), err error)
	// Confirm asks the user before an irreversible change.
	Confirm func(ask func() error) error
	// Show prints the command's result, or the plan.
	Show func(result func() error) error
	// Close ends the connections to this host's services.
	Close func()
	// serial runs phases one after another.
	serial bool
	Last   []string // the lines kubeadm users' scripts expect at the end of a run
}

// Ignore makes the workflows report these checks' errors as warnings.
func (p *Parts) Ignore(checks []string) {
	p.Env.Config = p.Env.Config.With(func(n *config.Node) { n.IgnorePreflightErrors = checks })
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

func (p *Parts) TellLast() error {
	for _, line := range p.Last {
		p.Env.UI.Result(line)
	}
	return nil
}

// Mode is how a command works: Acting does it, Planning only shows it. This file alone chooses between the two, and a command
// asks its mode for any difference. TestOnlyEnvAsksForDryRun checks that.
type Mode interface {
	Options(config.HostFacts) config.Options
	// checkReport rejects a report's flags that make no sense in this mode.
	checkReport(*cli.Report) error
	// sinks are where a report sends progress.
	sinks(*cli.Report) cli.Sinks
	// Discover returns the node described by self, as part of its cluster.
	Discover(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// Joined returns the control plane described by self, once discovery is over and admin.conf is written.
	Joined(ctx context.Context, real *linux.Host, self *config.JoinConfiguration, opts config.Options) (*config.Node, []string, error)
	// Stored is the configuration of this host's cluster, or the defaults with a warning.
	Stored(ctx context.Context, real *linux.Host) ([]byte, []string, error)
	Parts(*config.Node, *linux.Host) *Parts
	// MachineParts are for commands that prepare or reset a host: their phases know no node and no etcd.
	MachineParts(*config.Machine, *linux.Host) *Parts
	// LivingParts are for commands that look after a running cluster: their plans ask the API and etcd.
	LivingParts(*config.Node, *linux.Host) *Parts
	// APIParts are for commands talking only to the API; form and command are for its plan.
	APIParts(kubeconfig UserKubeconfig, form, command string) (*Parts, error)
}

func modeOf(g *cli.Globals, dryRun bool) Mode {
	if dryRun {
		return Planning{G: g, Diff: g.Report != nil && g.Report.Diff}
	}
	return Acting{g}
}

// ModeOfFlags is the mode the command line asks for. Commands without --dry-run always act.
func ModeOfFlags(g *cli.Globals, cmd *cobra.Command) Mode {
	dryRun, err := cmd.Flags().GetBool("dry-run")
	return modeOf(g, err == nil && dryRun)
}

// ModeOfJoin is the mode a join's flags and configuration file ask for.
func ModeOfJoin(g *cli.Globals, self *config.JoinConfiguration) Mode { return modeOf(g, self.DryRun) }

// NewParts makes node's parts, in the mode the flags and the configuration file ask for, and shows warnings about them.
func NewParts(g *cli.Globals, node *config.Node, real *linux.Host, warnings ...string) *Parts {
	p := modeOf(g, node.DryRun).Parts(node, real)
	cli.Warn(p.Env.UI, warnings)
	return p
}

// NewMachineParts makes a host's parts, in the mode the flags ask for.
func NewMachineParts(g *cli.Globals, host *config.Machine, real *linux.Host) *Parts {
	return modeOf(g, host.DryRun).MachineParts(host, real)
}

// KeepMode copies --dry-run to a configuration that wasn't loaded from the flags.
func KeepMode(cmd *cobra.Command, self *config.JoinConfiguration) {
	self.DryRun, _ = cmd.Flags().GetBool("dry-run") // fails only for a command without the flag
}

// KeepModeOfUpgrade returns a node made from the cluster's configuration with --dry-run, or the configuration file's dryRun.
func KeepModeOfUpgrade(self *config.UpgradeSelf, node *config.Node) *config.Node {
	return node.With(func(n *config.Node) { n.DryRun = self.DryRun })
}

func askForPlan(fs *pflag.FlagSet) error { return fs.Set("dry-run", "true") }

// ignoreFilesMode makes a command without --dry-run act even if its configuration file asks `init` for a plan.
func (o *InitOptions) ignoreFilesMode(fs *pflag.FlagSet) {
	if fs.Lookup("dry-run") == nil {
		o.Given = append(o.Given, "dry-run")
	}
}
