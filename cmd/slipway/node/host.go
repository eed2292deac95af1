// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/machine"
)

func NewHost(g *cli.Globals) *cobra.Command {
	return cli.Group("host", "Prepare this host for init or join, or undo that",
		newHostPrepare(g), newHostReset(g))
}

func newHostReset(g *cli.Globals) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo what `host prepare` did to this host",
		Long: "Undo what `host prepare` did to this host, and nothing else: programs, units, settings and images are removed, kernel\n" +
			"parameters and swap are restored. Edited files stay. Kernel modules stay loaded until the next boot.\n\n" +
			"A node has to be reset first, with `slipway reset`.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := o.loadReset(cmd, g)
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), machine.Reset(), p.Env.Config.SkipPhases)
		},
	}
	env.Workflow{Name: "host reset", Phases: machine.Reset(), Single: hostResetPhase}.AddTo(cmd, g, &o.HostFlags)
	return cmd
}

func hostResetPhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &hostOptions{}
	return p.Command(g, &o.HostFlags, func(cmd *cobra.Command, _ []string) error {
		parts, err := o.loadReset(cmd, g)
		if err != nil {
			return err
		}
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
}

func (o *hostOptions) loadReset(cmd *cobra.Command, g *cli.Globals) (*env.Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), "")
	if err != nil {
		return nil, err
	}
	machine, err := config.LoadHost(o.HostFlags)
	if err != nil {
		return nil, err
	}
	return env.NewParts(g, machine.Node(), in.Host), nil
}
