// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
)

// NewPreflight runs only the checks of init or join. Without a subcommand, it's init's.
func NewPreflight(g *cli.Globals) *cobra.Command {
	cmd := preflightInitCommand(g, "preflight", "Check whether this host is ready to become a node")
	cmd.Long = cmd.Short + ", and change nothing.\n\n" +
		"It runs the checks of init, and `preflight join` those of join. The exit code is 1 if init or join would refuse to start."
	cmd.AddCommand(
		preflightInitCommand(g, "init", "Check whether this host can become the first control plane"),
		preflightJoinCommand(g))
	return cmd
}

func preflightInitCommand(g *cli.Globals, use, short string) *cobra.Command {
	o, out := &env.InitOptions{}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check := newCheckup("init")
			parts, err := env.LoadInit(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			check.Node = parts.Env.Config.Name
			beginPhase(cmd.Context(), parts)
			found, err := bootstrap.CheckInit(cmd.Context(), parts.Env)
			if err != nil {
				return err
			}
			check.addAll(found)
			return check.report(g, out)
		},
	}
	config.Bind(cmd.Flags(), "preflight init", &o.InitFlags)
	out.Bind(cmd.Flags())
	return cmd
}
