// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

func newHostReset(g *globals) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo what `host prepare` did to this host",
		Long: "Undo what `host prepare` did to this host, and nothing else: programs, units, settings and images are removed, kernel\n" +
			"parameters and swap are as before. Files that somebody has edited stay. Kernel modules stay loaded until the next boot.\n\n" +
			"A node has to be reset first, with `slipway reset`.\n\n" +
			"It runs these phases in order; `host reset phase NAME` runs one alone:\n" + phaseTree(phases.HostReset(), "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := o.loadReset(cmd, g)
			if err != nil {
				return err
			}
			return p.run(cmd.Context(), phases.HostReset(), p.env.Config.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "host reset")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "host reset", phases.HostReset(), runnableHostResetPhase))
	return cmd
}

func runnableHostResetPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: p.Summary,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := o.loadReset(cmd, g)
			if err != nil {
				return err
			}
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.BindPhase(cmd.Flags(), "host reset", phaseFlags(p.Flags))
	reporting(g, cmd)
	return cmd
}

func (o *hostOptions) loadReset(cmd *cobra.Command, g *globals) (*parts, error) {
	o.Given = given(cmd.Flags())
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), "")
	if err != nil {
		return nil, err
	}
	node, err := config.LoadHost(o.Flags)
	if err != nil {
		return nil, err
	}
	return newParts(g, node, in.host), nil
}
