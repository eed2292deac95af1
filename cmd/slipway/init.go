// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases"
)

func newInit(g *globals) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this host the first control plane of a new cluster",
		Long: "Make this host the first control plane of a new cluster.\n\n" +
			"The phases, in order (each also alone, as `init phase NAME`):\n" + phaseTree(phases.Init(), "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, parts, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			if node.UploadCerts {
				warnOfOnlyControlPlane(parts.env.UI, node)
			}
			parts.env.Again = phases.HasBegun(parts.env.Host, node)
			return parts.run(cmd.Context(), phases.Init(), node.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "init")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "init", phases.Init(), runnableInitPhase))
	return cmd
}

// warnOfOnlyControlPlane tells whoever shares certificates with more control
// planes that their join will be refused.
func warnOfOnlyControlPlane(ui ui.UI, node *config.Node) {
	if node.Cluster.ControlPlaneEndpoint == "" {
		ui.Warnf("no other control plane can join a cluster without controlPlaneEndpoint (--control-plane-endpoint), " +
			"an address that leads to all of them: the shared certificates are of no use without it")
	}
}

// loadInit makes the one desired state, and the parts that bring it about.
func loadInit(cmd *cobra.Command, g *globals, o *initOptions) (*config.Node, *parts, error) {
	o.Given = given(cmd.Flags())
	if cmd.Flags().Lookup("dry-run") == nil { // the file may ask init for a plan; other commands have none
		o.Given = append(o.Given, "dry-run")
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, nil, err
	}
	opts := loadOptions(facts, o.DryRun)
	opts.Placeholders = o.DryRun || o.anyHost
	node, warnings, err := config.LoadInit(cmd.Context(), src, o.Flags, opts)
	if err != nil {
		return nil, nil, err
	}
	p := newParts(g, node, real, node.DryRun)
	warn(p.env.UI, warnings)
	return node, p, nil
}
