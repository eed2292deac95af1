// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/upgrade"
)

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
	node, err := in.node(cmd, g)
	if err != nil {
		return err
	}
	p := env.Planning{G: g}.Parts(node, in.Host)
	cli.Warn(p.Env.UI, in.warnings)
	list, err := upgrade.Manifests(p.Env)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, m := range list {
		path := thisnode.StaticPodPath(node, m.Name)
		before, after := redact.Document(string(m.Before)), redact.Document(string(m.Wanted))
		b.WriteString(plan.Unified(path, "new manifest", before, after, in.self.ContextLines))
	}
	return g.Result(b.String())
}
