// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"runtime"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/thisnode"
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
			"network plugins and images. Programs and images come from a bundle, never from the network. It uses\n" +
			"suitable software that's already on the host, and never replaces it.\n\n" +
			"On a node, a newer bundle replaces the programs of an earlier one; containers keep running.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, machine, prepare, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			defer closeBundle(prepare)
			return p.Run(cmd.Context(), phases.WithMachine(machine, prepare.Phases()), machine.SkipPhases)
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
		return parts.Run(cmd.Context(), phases.WithMachine(machine, only(prepare.Phases(), p.Name)), nil)
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

// load returns this host's parts, as a control plane's if it's a control plane, and its desired state.
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
	if controlPlane == nil {
		return env.NewMachineParts(g, machine, in.Host), machine, prepare, nil
	}
	parts := env.NewParts(g, controlPlane, in.Host, warnings...)
	prepare.ControlPlane = parts.Env.Config
	return parts, machine, prepare, nil
}

func controlPlaneHere(cmd *cobra.Command, m env.Mode, real *linux.Host) (*config.Node, []string, error) {
	if !thisnode.IsControlPlane(real) {
		return nil, nil, nil
	}
	stored, warnings, err := m.Stored(cmd.Context(), real)
	if err != nil {
		return nil, nil, err
	}
	self := thisnode.Current(real)
	env.KeepMode(cmd, self)
	node, more, err := env.NodeFrom(stored, self)
	return node, append(warnings, more...), errors.WithMessage(err, "this host is a control plane, and its configuration")
}

// newPreparation opens the bundle, which must be for this machine.
func newPreparation(flags config.HostFlags) (_ *machine.Prepare, err error) {
	prepare := &machine.Prepare{
		BundleFile: flags.Bundle, BundleDigest: flags.Digest, KeepSwap: flags.Swap == "keep", AllowDowngrade: flags.AllowDowngrade,
	}
	for _, text := range flags.RegistryMirrors {
		mirror, err := containerd.ParseMirror(text)
		if err != nil {
			return nil, err
		}
		prepare.Mirrors = append(prepare.Mirrors, mirror)
	}
	if flags.Bundle != "" {
		if prepare.Bundle, err = openBundle(flags); err != nil {
			return nil, err
		}
	}
	return prepare, nil
}

func openBundle(flags config.HostFlags) (*bundle.Bundle, error) {
	keys, err := bundle.TrustedKeys(flags.PublicKeys)
	if err != nil {
		return nil, err
	}
	b, err := bundle.OpenPinned(flags.Bundle, keys, flags.Digest)
	if err != nil {
		return nil, err
	}
	if err := b.Fits(runtime.GOOS, runtime.GOARCH); err != nil {
		_ = b.Close() // only read from
		return nil, err
	}
	return b, nil
}

func closeBundle(p *machine.Prepare) {
	if p.Bundle != nil {
		_ = p.Bundle.Close() // only read from
	}
}

func NewHost(g *cli.Globals) *cobra.Command {
	return cli.Group("host", "Prepare this host for init or join, or undo that",
		newHostPrepare(g), newHostReset(g))
}

func newHostReset(g *cli.Globals) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo `host prepare` on this host",
		Long: "Undo `host prepare` on this host, and nothing else: programs, units, settings and images are removed, kernel\n" +
			"parameters and swap are restored. Edited files stay. Kernel modules stay loaded until the next boot.\n\n" +
			"Reset a node with `slipway reset` first.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := o.loadReset(cmd, g)
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), machine.Reset(), p.Env.Machine.SkipPhases)
		},
	}
	env.Workflow{Name: "host reset", Phases: machine.Reset(), Single: hostResetPhase}.AddTo(cmd, g, &o.HostFlags)
	return cmd
}

func hostResetPhase(g *cli.Globals, p env.SinglePhase) *cobra.Command {
	o := &hostOptions{}
	return p.Command(g, &o.HostFlags, func(cmd *cobra.Command, _ []string) error {
		parts, err := o.loadReset(cmd, g)
		if err != nil {
			return err
		}
		return parts.Run(cmd.Context(), p.Alone(), nil)
	})
}

func (o *hostOptions) loadReset(cmd *cobra.Command, g *cli.Globals) (*env.Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), "")
	if err != nil {
		return nil, err
	}
	machine, err := config.LoadHost(o.HostFlags)
	if err != nil {
		return nil, err
	}
	return env.NewMachineParts(g, machine, in.Host), nil
}
