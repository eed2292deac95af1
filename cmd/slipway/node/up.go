// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

// upOptions are the flags of `up`: those of `host prepare`, `init` and `join`.
type upOptions struct{ config.Flags }

// NewUp makes the command `up`.
func NewUp(g *cli.Globals) *cobra.Command {
	o := &upOptions{}
	host := &config.Node{}
	cmd := &cobra.Command{
		Use:   "up [HOST:PORT]",
		Short: "Make this machine a node: prepare it, and create a cluster or join one",
		Long: "Make this machine a node: prepare it, and create a cluster or, with HOST:PORT, join the one whose API server is there.\n" +
			"It is `host prepare`, and then `init` or `join`, and takes their flags; it waits until the node is Ready and a Pod runs.\n\n" +
			"Without HOST:PORT, it runs these phases:\n" + env.PhaseTree(phases.Up(&phases.Prepare{}, host), "  ") +
			"\nWith HOST:PORT, it runs these phases:\n" + env.PhaseTree(phases.UpJoin(&phases.Prepare{}, host), "  "),
		Args: cli.Takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	o.Bind(cmd.Flags(), "up")
	env.Reporting(g, cmd)
	return cmd
}

func (o *upOptions) run(cmd *cobra.Command, g *cli.Globals, args []string) error {
	o.Given = cli.Given(cmd.Flags())
	if len(args) > 0 {
		o.Endpoint = args[0]
	}
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return err
	}
	joins := o.Joins(in.File)
	node, host, err := o.ForUp(joins, in.File)
	if err != nil {
		return err
	}
	prepare, err := newPreparation(host)
	if err != nil {
		return err
	}
	defer closeBundle(prepare)
	machine, err := config.LoadHost(host)
	if err != nil {
		return err
	}
	if socket, err := prepare.Socket(cmd.Context(), env.NewParts(g, machine, in.Host).Env); err == nil { // otherwise a phase says why
		in.Options.Facts.Sockets = []string{socket}
	}
	if joins {
		return o.join(cmd, g, node, in, machine, prepare)
	}
	in.Options.KubernetesVersion = prepare.KubernetesVersion()
	return o.init(cmd, g, node, in, machine, prepare)
}

func (o *upOptions) init(cmd *cobra.Command, g *cli.Globals, flags config.Flags, in *env.Input, machine *config.Node, prepare *phases.Prepare) error {
	i := &env.InitOptions{Flags: flags}
	if err := i.TakeNetwork(cmd.Context(), g); err != nil {
		return err
	}
	p, err := i.Parts(cmd.Context(), g, in)
	if err != nil {
		return err
	}
	machine.Becomes(p.Env.Config)
	prepare.On(p.Env)
	beginInit(cmd.Context(), p)
	return p.Run(cmd.Context(), phases.Up(prepare, machine), o.skipped("init", p.Env.Config))
}

func (o *upOptions) join(cmd *cobra.Command, g *cli.Globals, flags config.Flags, in *env.Input, machine *config.Node, prepare *phases.Prepare) error {
	j := &joinOptions{Flags: flags}
	if err := j.takeToken(cmd.Context(), g); err != nil {
		return err
	}
	p, err := j.parts(cmd.Context(), g, in)
	if err != nil {
		return err
	}
	machine.Becomes(p.Env.Config)
	prepare.On(p.Env)
	beginJoin(cmd.Context(), p)
	return p.Run(cmd.Context(), phases.UpJoin(prepare, machine), o.skipped("join", p.Env.Config))
}

// skipped are the phases to skip: those of the flag, and those that a configuration file names without the part of `up` that
// they are in.
func (o *upOptions) skipped(part string, node *config.Node) []string {
	skip := slices.Clone(o.SkipPhases)
	for _, name := range node.SkipPhases {
		skip = append(skip, part+"/"+name)
	}
	return skip
}
