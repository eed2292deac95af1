// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

func newJoinPhase(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "phase",
		Short: "Run one phase of join",
		RunE:  requireSubcommand,
	}
	for _, p := range phases.Join() {
		cmd.AddCommand(phaseCommand(p, wholePhase, func(p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
			return runnableJoinPhase(g, p, use, wrap)
		}))
	}
	return cmd
}

func runnableJoinPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{Use: use, Short: p.Summary, Args: cobra.NoArgs}
	load := func([]string) (*parts, error) { return loadJoined(cmd, g, o) }
	if slices.Contains(p.Flags, "discovery-file") {
		cmd.Use += " [HOST:PORT]"
		cmd.Args = cobra.MaximumNArgs(1)
		load = func(args []string) (*parts, error) { return loadJoin(cmd, g, o, args) }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parts, err := load(args)
		if err != nil {
			return err
		}
		return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
	}
	o.bind(cmd.Flags(), p.Flags)
	return cmd
}

// loadJoined is for phases that need not know the cluster: they go by the
// configuration, if one is given, and by what earlier phases left here.
func loadJoined(cmd *cobra.Command, g *globals, o *joinOptions) (*parts, error) {
	o.Given = given(cmd.Flags())
	src, err := readConfigFile(g, o.configFile)
	if err != nil {
		return nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, err
	}
	opts := loadOptions(facts, o.DryRun)
	self := &config.JoinConfiguration{DryRun: o.DryRun}
	self.NodeRegistration.CRISocket = o.CRISocket
	if src != nil {
		if self, _, err = config.LoadJoin(src, o.JoinFlags, opts); err != nil {
			return nil, err
		}
	}
	node, err := phases.StartedNode(real, self, opts)
	if err != nil {
		return nil, err
	}
	return newParts(g, node, real, node.DryRun), nil
}
