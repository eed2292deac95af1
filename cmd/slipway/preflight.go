// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/phases"
)

// newPreflight runs the checks of init or join and nothing else. Without a subcommand, it runs those of init.
func newPreflight(g *globals) *cobra.Command {
	cmd := preflightInitCommand(g, "preflight", "Check whether this host is ready to become a node")
	cmd.Long = cmd.Short + ", and change nothing.\n\n" +
		"It runs the checks of init, and `preflight join` those of join. The exit code is 1 if init or join would refuse to start."
	cmd.AddCommand(
		preflightInitCommand(g, "init", "Check whether this host can become the first control plane"),
		preflightJoinCommand(g))
	return cmd
}

func preflightInitCommand(g *globals, use, short string) *cobra.Command {
	o, out := &initOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			check := newCheckup("init")
			parts, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.close()
			check.Node = parts.env.Config.Name
			parts.beginPhase(cmd.Context())
			found, err := phases.CheckInit(cmd.Context(), parts.env)
			if err != nil {
				return err
			}
			check.addAll(found)
			return check.report(g, out)
		},
	}
	o.Bind(cmd.Flags(), "preflight init")
	out.bind(cmd.Flags())
	return cmd
}
