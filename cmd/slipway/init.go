// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases"
)

func newInit(g *globals) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a cluster with this host as its first control plane",
		Long: "Create a cluster with this host as its first control plane.\n\n" +
			"It runs these phases in order; `init phase NAME` runs one alone:\n" + phaseTree(phases.Init(), "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			p.beginInit(cmd.Context())
			return p.run(cmd.Context(), phases.Init(), p.env.Config.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "init")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "init", phases.Init(), runnableInitPhase))
	return cmd
}

// beginInit looks at what a whole run of init begins with.
func (p *parts) beginInit(ctx context.Context) {
	if p.env.Config.UploadCerts {
		warnOfMissingEndpoint(p.env.UI, p.env.Config)
	}
	p.env.Earlier = phases.LookBack(ctx, p.env)
}

// warnOfMissingEndpoint warns that sharing certificates is pointless if no control plane can join.
func warnOfMissingEndpoint(ui ui.UI, node *config.Node) {
	if node.Cluster.ControlPlaneEndpoint == "" {
		ui.Warnf("the certificates are shared, but no control plane can join with them: " +
			"the cluster has no controlPlaneEndpoint (--control-plane-endpoint), an address that leads to all control planes")
	}
}

// loadInit loads the desired state, and makes the parts to work with.
func loadInit(cmd *cobra.Command, g *globals, o *initOptions) (*parts, error) {
	o.Given = given(cmd.Flags())
	o.ignoreFilesMode(cmd.Flags())
	if err := o.takeNetwork(cmd.Context(), g); err != nil {
		return nil, err
	}
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	if o.anyRuntime {
		in.anyRuntime()
	}
	return o.parts(cmd.Context(), g, in)
}

// parts loads the desired state from input that is read already.
func (o *initOptions) parts(ctx context.Context, g *globals, in *nodeInput) (*parts, error) {
	in.options.Placeholders, in.options.Existing = o.anyHost, o.onePhase || o.anyHost
	in.options.StartsKubelet = !o.anyRuntime && !o.anyHost
	node, warnings, err := config.LoadInit(ctx, in.file, o.Flags, in.options)
	if err != nil {
		return nil, err
	}
	p := newParts(g, node, in.host)
	warn(p.env.UI, warnings)
	return p, nil
}
