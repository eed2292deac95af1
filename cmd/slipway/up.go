// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

// upOptions are the flags of `up`: those of `host prepare`, `init` and `join`.
type upOptions struct{ config.Flags }

func newUp(g *globals) *cobra.Command {
	o := &upOptions{}
	host := &config.Node{}
	cmd := &cobra.Command{
		Use:   "up [HOST:PORT]",
		Short: "Make this machine a node: prepare it, and create a cluster or join one",
		Long: "Make this machine a node: prepare it, and create a cluster or, with HOST:PORT, join the one whose API server is there.\n" +
			"It is `host prepare`, and then `init` or `join`, and takes their flags; it waits until the node is Ready and a Pod runs.\n\n" +
			"Without HOST:PORT, it runs these phases:\n" + phaseTree(phases.Up(&phases.Prepare{}, host), "  ") +
			"\nWith HOST:PORT, it runs these phases:\n" + phaseTree(phases.UpJoin(&phases.Prepare{}, host), "  "),
		Args: takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	o.Bind(cmd.Flags(), "up")
	reporting(g, cmd)
	return cmd
}

func (o *upOptions) run(cmd *cobra.Command, g *globals, args []string) error {
	o.Given = given(cmd.Flags())
	if len(args) > 0 {
		o.Endpoint = args[0]
	}
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return err
	}
	joins := o.Joins(in.file)
	node, host, err := o.ForUp(joins, in.file)
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
	if socket, err := prepare.Socket(cmd.Context(), newParts(g, machine, in.host).env); err == nil { // otherwise a phase says why
		in.options.Facts.Sockets = []string{socket}
	}
	if joins {
		return o.join(cmd, g, node, in, machine, prepare)
	}
	in.options.KubernetesVersion = prepare.KubernetesVersion()
	return o.init(cmd, g, node, in, machine, prepare)
}

func (o *upOptions) init(cmd *cobra.Command, g *globals, flags config.Flags, in *nodeInput, machine *config.Node, prepare *phases.Prepare) error {
	i := &initOptions{Flags: flags}
	if err := i.takeNetwork(cmd.Context(), g); err != nil {
		return err
	}
	p, err := i.parts(cmd.Context(), g, in)
	if err != nil {
		return err
	}
	machine.Becomes(p.env.Config)
	prepare.On(p.env)
	p.beginInit(cmd.Context())
	return p.run(cmd.Context(), phases.Up(prepare, machine), o.skipped("init", p.env.Config))
}

func (o *upOptions) join(cmd *cobra.Command, g *globals, flags config.Flags, in *nodeInput, machine *config.Node, prepare *phases.Prepare) error {
	j := &joinOptions{Flags: flags}
	if err := j.takeToken(cmd.Context(), g); err != nil {
		return err
	}
	p, err := j.parts(cmd.Context(), g, in)
	if err != nil {
		return err
	}
	machine.Becomes(p.env.Config)
	prepare.On(p.env)
	p.beginJoin(cmd.Context())
	return p.run(cmd.Context(), phases.UpJoin(prepare, machine), o.skipped("join", p.env.Config))
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
