// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/pkg/errors"
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
			"It runs `host prepare`, then `init` or `join`, and accepts their flags, except --restore. Then it waits until the node\n" +
			"is Ready and a Pod runs.\n\n" +
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
	machine, err := config.LoadHost(o.Host)
	if err != nil {
		return err
	}
	prepare, err := newPreparation(o.Host)
	if err != nil {
		return err
	}
	defer closeBundle(prepare)
	if socket, err := prepare.Socket(cmd.Context(), env.NewMachineParts(g, machine, in.Host).Env); err == nil { // or a phase says why
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
	prepare.DetectControlPlane(p.Env)
	begin(cmd.Context(), p)
	node := p.Env.Config
	machine = machine.With(func(m *config.Machine) {
		m.Kubelet, m.KubeletExtraArgs, m.Timeouts = node.Kubelet, node.KubeletExtraArgs, node.Timeouts
	})
	return p.Run(cmd.Context(), workflow(prepare, machine), o.skipped(part, node))
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

type downOptions struct{ config.DownFlags }

const undoesHost = undoesNode + " It also undoes the preparation. This deletes the programs\n" +
	"and settings of the kubelet and containerd; containerd's images, containers and other data, if `host prepare`\n" +
	"installed it; the network interfaces and rules of the Pods, kube-proxy and flannel; and etcd's backups,\n" +
	"from upgrades, rollbacks, restores and recoveries."

func NewDown(g *cli.Globals) *cobra.Command {
	o := &downOptions{}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo `up` on this machine",
		Long: "Undo `up`, `init` or `join` on this machine, as `reset` does. With --host, also undo the preparation before that,\n" +
			"as `host reset` does: then the machine is as it was.\n\n" +
			"With --host, it runs these phases, and otherwise the first of them:\n" + env.PhaseTree(phases.DownHost(&config.Machine{}), "  "),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, g) },
	}
	config.Bind(cmd.Flags(), "down", &o.DownFlags)
	env.Reporting(g, cmd)
	return cmd
}

func (o *downOptions) run(cmd *cobra.Command, g *cli.Globals) error {
	o.Given = cli.Given(cmd.Flags())
	if o.Reset.Host && g.Rootfs != "" {
		return errors.New("--host is for this machine's kernel and services and --rootfs for another host's files: leave one of them out")
	}
	o.Split()
	reset := &resetOptions{ResetFlags: o.Reset}
	p, err := reset.load(cmd, g)
	if err != nil {
		return err
	}
	workflow, text := phases.Down(), undoesNode
	if o.Reset.Host {
		machine, err := config.LoadHost(o.Host)
		if err != nil {
			return err
		}
		workflow, text = phases.DownHost(machine), undoesHost
	}
	skip := slices.Clone(o.SkipPhases)
	for _, name := range p.Env.Config.SkipPhases {
		skip = append(skip, "reset/"+name)
	}
	if !slices.Contains(skip, "reset/"+askingPhase) {
		if err := confirmReset(cmd.Context(), g, p, text); err != nil {
			return err
		}
	}
	return p.Run(cmd.Context(), workflow, skip)
}
