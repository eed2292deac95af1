// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

type downOptions struct{ config.DownFlags }

const undoesHost = undoesNode + " It also undoes what prepare did: the kubelet's and containerd's\n" +
	"programs and settings are deleted; containerd's images, containers and all its other data, if prepare\n" +
	"installed it; the network interfaces and rules of the Pods, kube-proxy and flannel; and the backups of\n" +
	"etcd that upgrades have made."

func NewDown(g *cli.Globals) *cobra.Command {
	o := &downOptions{}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo what up did to this machine",
		Long: "Undo what up, init or join did to this machine, as `reset` does. With --host, also undo the preparation before that,\n" +
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
