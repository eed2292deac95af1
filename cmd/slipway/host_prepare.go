// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases"
)

// hostOptions are the flags of commands that prepare a host.
type hostOptions struct{ config.Flags }

func newHostPrepare(g *globals) *cobra.Command {
	o := &hostOptions{}
	workflow := (&phases.Prepare{}).Phases()
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Give this host what a node needs",
		Long: "Give this host what a node needs before `slipway init` or `slipway join`: kernel settings, a container runtime, the kubelet,\n" +
			"network plugins and images. Programs and images come from a bundle, and no network is used. What the host has already is\n" +
			"used if it is good enough, and never replaced.\n\n" +
			"On a node, a newer bundle replaces what an earlier one installed; containers go on running.\n\n" +
			"It runs these phases in order; `host prepare phase NAME` runs one alone:\n" + phaseTree(workflow, "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, machine, prepare, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			defer closeBundle(prepare)
			return p.run(cmd.Context(), phases.GoingBy(machine, prepare.Phases()), machine.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "host prepare")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "host prepare", workflow, runnablePreparePhase))
	return cmd
}

func runnablePreparePhase(g *globals, phase phases.Phase, use string, _ wrapPhase) *cobra.Command {
	o := &hostOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: phase.Summary,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, machine, prepare, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			defer closeBundle(prepare)
			return p.run(cmd.Context(), phases.GoingBy(machine, only(prepare.Phases(), phase.Name)), nil)
		},
	}
	o.BindPhase(cmd.Flags(), "host prepare", phaseFlags(phase.Flags))
	reporting(g, cmd)
	return cmd
}

// only is a workflow of the one phase with a name.
func only(workflow []phases.Phase, name string) []phases.Phase {
	for _, p := range workflow {
		if p.Name == name {
			return []phases.Phase{p.Needing()}
		}
	}
	return nil
}

// load returns the parts of the node that this host is, if it is a control plane, and what the host is to be.
func (o *hostOptions) load(cmd *cobra.Command, g *globals) (*parts, *config.Node, *phases.Prepare, error) {
	o.Given = given(cmd.Flags())
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), "")
	if err != nil {
		return nil, nil, nil, err
	}
	machine, err := config.LoadHost(o.Flags)
	if err != nil {
		return nil, nil, nil, err
	}
	node := machine
	controlPlane, warnings, err := controlPlaneHere(cmd.Context(), modeOfFlags(g, cmd), in.host)
	if err != nil {
		return nil, nil, nil, err
	}
	if controlPlane != nil {
		keepModeOf(machine, controlPlane)
		node = controlPlane
	}
	prepare, err := newPreparation(o.Flags)
	if err != nil {
		return nil, nil, nil, err
	}
	prepare.Alone, prepare.ControlPlane = true, controlPlane
	p := newParts(g, node, in.host)
	warn(p.env.UI, warnings)
	return p, machine, prepare, nil
}

// controlPlaneHere is the control plane that this host is, or nil.
func controlPlaneHere(ctx context.Context, m mode, real *host.Real) (*config.Node, []string, error) {
	if !thisnode.IsControlPlane(real) {
		return nil, nil, nil
	}
	stored, warnings, err := m.stored(ctx, real)
	if err != nil {
		return nil, nil, err
	}
	node, more, err := nodeFrom(stored, thisnode.Current(real))
	return node, append(warnings, more...), errors.WithMessage(err, "this host is a control plane, and its configuration")
}

// newPreparation opens the bundle, which must be for this machine.
func newPreparation(flags config.Flags) (_ *phases.Prepare, err error) {
	prepare := &phases.Prepare{
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

func openBundle(flags config.Flags) (*bundle.Bundle, error) {
	keys, err := bundleKeys(flags.PublicKeys)
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

// bundleKeys are those of the files, or the ones that this host trusts.
func bundleKeys(files []string) (bundle.Keys, error) {
	if len(files) > 0 {
		return bundle.KeysFromFiles(files...)
	}
	return bundle.ConfiguredKeys(bundle.KeysDir)
}

func closeBundle(p *phases.Prepare) {
	if p.Bundle != nil {
		_ = p.Bundle.Close() // only read from
	}
}
