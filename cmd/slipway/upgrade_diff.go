// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/phases"
)

func newUpgradeDiff(g *globals) *cobra.Command {
	o := &upgradeOptions{}
	cmd := &cobra.Command{
		Use:   "diff [VERSION]",
		Short: "Show what an upgrade changes in this control plane's static Pods",
		Long: "Show the difference between this control plane's static Pods and those that `upgrade apply VERSION` would write, " +
			"as unified diffs. Nothing is changed.",
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return upgradeDiff(cmd, g, o, args) },
	}
	o.Bind(cmd.Flags(), "upgrade diff")
	return cmd
}

func upgradeDiff(cmd *cobra.Command, g *globals, o *upgradeOptions, args []string) error {
	in, err := o.read(cmd, g, "upgrade diff", args)
	if err != nil {
		return err
	}
	defer in.host.Close()
	node, err := in.node(cmd, g)
	if err != nil {
		return err
	}
	if path := kubeconfigFlag(cmd); path != "" {
		node.Paths.AdminKubeconfig = path
	}
	p := planning{g: g}.parts(node, in.host)
	warn(p.env.UI, in.warnings)
	list, err := phases.UpgradedManifests(p.env)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, m := range list {
		b.WriteString(unified(m.Path, "new manifest", shownManifest(m.Before), shownManifest(m.After), in.self.ContextLines))
	}
	return g.result(b.String())
}

// shownManifest is a static Pod without the values of its environment variables.
func shownManifest(data []byte) string { return redact.Document(string(data)) }
