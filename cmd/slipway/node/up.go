// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
	"github.com/slipway-k8s/slipway/phases/machine"
)

type upOptions struct{ config.UpFlags }

func NewUp(g *cli.Globals) *cobra.Command {
	o := &upOptions{}
	host := &config.Machine{}
	cmd := &cobra.Command{
		Use:   "up [HOST:PORT]",
		Short: "Make this machine a node: prepare it, and create a cluster or join one",
		Long: "Make this machine a node: prepare it, and create a cluster or, with HOST:PORT, join the cluster of that API server.\n" +
			"It is `host prepare`, and then `init` or `join`, and takes their flags; it waits until the node is Ready and a Pod runs.\n\n" +
			"Without HOST:PORT, it runs these phases:\n" + env.PhaseTree(phases.Up(&machine.Prepare{}, host), "  ") +
			"\nWith HOST:PORT, it runs these phases:\n" + env.PhaseTree(phases.UpJoin(&machine.Prepare{}, host), "  "),
		Args: cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	config.Bind(cmd.Flags(), "up", &o.UpFlags)
	env.Reporting(g, cmd)
	return cmd
}

func (o *upOptions) run(cmd *cobra.Command, g *cli.Globals, args []string) error {
	o.Given = cli.Given(cmd.Flags())
	if len(args) > 0 {
		o.Join.Endpoint = args[0]
	}
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return err
	}
	joins := o.Joins(in.File)
	if err := o.Split(joins, in.File); err != nil {
		return err
	}
	prepare, err := newPreparation(o.Host)
	if err != nil {
		return err
	}
	defer closeBundle(prepare)
	machine, err := config.LoadHost(o.Host)
	if err != nil {
		return err
	}
	if socket, err := prepare.Socket(cmd.Context(), env.NewParts(g, machine.Node(), in.Host).Env); err == nil { // or a phase says why
		in.Options.Facts.Sockets = []string{socket}
	}
	part, workflow := "join", phases.UpJoin
	if !joins {
		part, workflow = "init", phases.Up
		in.Options.KubernetesVersion = prepare.KubernetesVersion()
	}
	p, err := o.parts(cmd.Context(), g, joins, in)
	if err != nil {
		return err
	}
	prepare.On(p.Env)
	begin(cmd.Context(), p)
	return p.Run(cmd.Context(), workflow(prepare, machine.Becoming(p.Env.Config)), o.skipped(part, p.Env.Config))
}

func (o *upOptions) parts(ctx context.Context, g *cli.Globals, joins bool, in *env.Input) (*env.Parts, error) {
	if joins {
		join := &joinOptions{JoinFlags: o.Join}
		if err := join.takeToken(ctx, g); err != nil {
			return nil, err
		}
		return join.parts(ctx, g, in)
	}
	create := &env.InitOptions{InitFlags: o.Init}
	if err := create.TakeNetwork(ctx, g); err != nil {
		return nil, err
	}
	return create.Parts(ctx, g, in)
}

// skipped are the phases to skip, from the flag and the configuration file, which names them without their part of `up`.
func (o *upOptions) skipped(part string, node *config.Node) []string {
	skip := slices.Clone(o.SkipPhases)
	for _, name := range node.SkipPhases {
		skip = append(skip, part+"/"+name)
	}
	return skip
}
