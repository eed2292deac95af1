// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/step"
)

type hostOptions struct{ config.HostFlags }

func newHostPrepare(g *cli.Globals) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Give this host everything a node needs",
		Long: "Give this host everything a node needs before `slipway init` or `slipway join`: kernel settings, a container runtime, the kubelet,\n" +
			"network plugins and images. Programs and images come from a bundle, and no network is used. Anything suitable that\n" +
			"the host already has is used, and never replaced.\n\n" +
			"On a node, a newer bundle replaces what an earlier one installed; containers keep running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, machine, prepare, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			defer closeBundle(prepare)
			return p.Run(cmd.Context(), phases.WithConfig(machine, prepare.Phases()), machine.SkipPhases)
		},
	}
	env.Workflow{Name: "host prepare", Phases: (&machine.Prepare{}).Phases(), Single: preparePhase}.AddTo(cmd, g, &o.HostFlags)
	return cmd
}

func preparePhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &hostOptions{}
	return p.Command(g, &o.HostFlags, func(cmd *cobra.Command, _ []string) error {
		parts, machine, prepare, err := o.load(cmd, g)
		if err != nil {
			return err
		}
		defer closeBundle(prepare)
		return parts.Run(cmd.Context(), phases.WithConfig(machine, only(prepare.Phases(), p.Name)), nil)
	})
}

func only(workflow []step.Phase, name string) []step.Phase {
	for _, p := range workflow {
		if p.Name == name {
			return []step.Phase{p.Needing()}
		}
	}
	return nil
}

// load returns this host's parts, as a control plane if it's one, and its desired state.
func (o *hostOptions) load(cmd *cobra.Command, g *cli.Globals) (*env.Parts, *config.Machine, *machine.Prepare, error) {
	o.Given = cli.Given(cmd.Flags())
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), "")
	if err != nil {
		return nil, nil, nil, err
	}
	machine, err := config.LoadHost(o.HostFlags)
	if err != nil {
		return nil, nil, nil, err
	}
	controlPlane, warnings, err := controlPlaneHere(cmd, env.ModeOfFlags(g, cmd), in.Host)
	if err != nil {
		return nil, nil, nil, err
	}
	prepare, err := newPreparation(o.HostFlags)
	if err != nil {
		return nil, nil, nil, err
	}
	prepare.Alone = true
	parts := env.NewParts(g, cmp.Or(controlPlane, machine.Node()), in.Host, warnings...)
	if controlPlane != nil {
		prepare.ControlPlane = parts.Env.Config
	}
	return parts, machine, prepare, nil
}
