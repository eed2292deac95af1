// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
)

type planOptions struct {
	options
	output cli.OutputOptions
	diff   bool
}

func newPlan(g *cli.Globals) *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan [VERSION]",
		Short: "Show what the cluster can be upgraded to, and how",
		Long: "Show the versions on each node, the cluster's possible upgrades, obstacles, and each step. " +
			"Without VERSION, the plan is for the newest releases that this program was built with. It changes nothing, and contacts only the cluster.",
		Args: cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	config.Bind(cmd.Flags(), "upgrade plan", &o.UpgradeFlags)
	o.output.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.diff, "diff", false, "show what changes on this control plane and in the cluster")
	return cmd
}

func (o *planOptions) run(cmd *cobra.Command, g *cli.Globals, args []string) error {
	if _, err := o.output.Printer(); err != nil { // before anything is asked
		return err
	}
	in, err := o.read(cmd, g, "upgrade plan", args)
	if err != nil {
		return err
	}
	defer in.Host.Close()
	said := cli.NewUI(g)
	cli.Warn(said, in.warnings)
	api, own := planCluster(cmd)
	p := &planner{g: g, in: in, said: said, api: api, own: own, diff: o.diff, given: upgrading.Given{
		Config: o.ConfigFile, Patches: o.Patches, Kubeconfig: env.KubeconfigFlag(cmd), IgnorePreflightErrors: o.IgnorePreflightErrors}}
	result, err := p.plan(cmd.Context())
	if err != nil {
		return err
	}
	return o.output.Print(g, result, func(w io.Writer) error {
		if in.self.PrintConfig {
			if err := upgrading.PrintStored(w, p.state.Stored); err != nil {
				return err
			}
		}
		return result.Print(w)
	})
}

// planCluster is this node's own cluster, or kubectl's, for a user who may not read admin.conf.
func planCluster(cmd *cobra.Command) (api *cluster.Real, own bool) {
	kubeconfig := env.KubeconfigOfUser(cmd)
	if f, err := os.Open(config.DefaultAdminKubeconfig); err == nil && env.KubeconfigFlag(cmd) == "" {
		_ = f.Close()
		kubeconfig, own = env.UserKubeconfig{config.DefaultAdminKubeconfig}, true
	}
	return env.UserCluster(kubeconfig, env.AskTimeout), own
}

func newDiff(g *cli.Globals) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "diff [VERSION]",
		Short: "Show how an upgrade changes this control plane's static Pods",
		Long: "Show how `upgrade apply VERSION` would change this control plane's static Pods, " +
			"as unified diffs. Nothing is changed.",
		Args: cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return runDiff(cmd, g, o, args) },
	}
	config.Bind(cmd.Flags(), "upgrade diff", &o.UpgradeFlags)
	return cmd
}

func runDiff(cmd *cobra.Command, g *cli.Globals, o *options, args []string) error {
	in, err := o.read(cmd, g, "upgrade diff", args)
	if err != nil {
		return err
	}
	defer in.Host.Close()
	next, err := in.node(cmd, g)
	if err != nil {
		return err
	}
	p := env.Planning{G: g}.Parts(next, in.Host)
	cli.Warn(p.Env.UI, in.warnings)
	list, err := node.Replacements(p.Env)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, m := range list {
		path := next.Paths.StaticPod(m.Name)
		before, after := redact.Document(string(m.Before)), redact.Document(string(m.Wanted))
		b.WriteString(plan.Unified(path, "new manifest", before, after, in.self.ContextLines))
	}
	return g.Result(b.String())
}
