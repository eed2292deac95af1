// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package node has the commands that make this host a node and undo it: init, join, reset, up, down, host prepare, host reset and
// preflight. `reset node` removes another node, whose host is lost. phases/bootstrap, phases/reset, phases/machine and phases do
// the work.
package node

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
)

func NewInit(g *cli.Globals) *cobra.Command {
	o, restore := &env.InitOptions{}, &restoring{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a cluster with this host as its first control plane",
		Long: "Create a cluster with this host as its first control plane.\n\n" +
			"With --restore, the cluster isn't new: etcd gets the data of a snapshot. The cluster's CA and keys have to be on this host, or\n" +
			"in the snapshot (`slipway etcd snapshot save --with-pki`). The snapshot has the cluster's configuration, except for this host's\n" +
			"own settings. On a control plane that exists, use `slipway etcd restore`.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Restored = restore.configuration
			p, err := env.LoadInit(cmd, g, o)
			if err != nil {
				return err
			}
			begin(cmd.Context(), p)
			workflow, err := restore.within(p, bootstrap.Init())
			if err != nil {
				p.Close()
				return err
			}
			return p.Run(cmd.Context(), workflow, p.Env.Config.SkipPhases)
		},
	}
	restore.bind(cmd.Flags())
	env.Workflow{Name: "init", Phases: bootstrap.Init(), Single: initPhase}.AddTo(cmd, g, &o.InitFlags)
	return cmd
}

// begin looks for traces of earlier runs, before a whole run of init or join.
func begin(ctx context.Context, p *env.Parts) {
	if p.Env.Config.UploadCerts {
		env.WarnOfMissingEndpoint(p.Env.UI, p.Env.Config)
	}
	p.Env.Earlier = bootstrap.DetectEarlierRun(ctx, p.Env)
}

func initPhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &env.InitOptions{AnyRuntime: !bootstrap.ChoosesRuntime(p.Phase)}
	return p.Command(g, &o.InitFlags, func(cmd *cobra.Command, _ []string) error {
		if o.PrintManifest {
			return printManifest(cmd, g, o, p.Phase)
		}
		o.OnePhase = true
		parts, err := env.LoadInit(cmd, g, o)
		if err != nil {
			return err
		}
		parts.Env.Earlier = bootstrap.DetectEarlierPhaseRun(cmd.Context(), parts.Env, p.Phase)
		// skipPhases is for the whole of init; this phase was asked for by name.
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
}

// printManifest prints an add-on's objects, and does nothing else.
func printManifest(cmd *cobra.Command, g *cli.Globals, o *env.InitOptions, p step.Phase) error {
	o.AnyHost = true
	parts, err := env.LoadInit(cmd, g, o)
	if err != nil {
		return err
	}
	data, err := p.Print(parts.Env)
	if err != nil {
		return err
	}
	_, err = g.Streams.Out.Write(data)
	return err
}
