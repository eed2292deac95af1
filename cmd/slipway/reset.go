// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

func newReset(g *globals) *cobra.Command {
	o := &resetOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo what init or join did to this host",
		Long: "Undo what init or join did to this host: its Pods are killed, and its certificates, its settings and its copy of\n" +
			"the cluster's data are deleted. What cannot be reached, such as the rest of a cluster, does not stop it.\n\n" +
			"The phases, in order (each also alone, as `reset phase NAME`):\n" + phaseTree(phases.Reset(), "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := loadReset(cmd, g, o)
			if err != nil {
				return err
			}
			n := p.env.Config
			if !slices.Contains(n.SkipPhases, askingPhase) {
				if err := confirmReset(cmd.Context(), g, n); err != nil {
					return err
				}
			}
			return p.run(cmd.Context(), phases.Reset(), n.SkipPhases)
		},
	}
	o.Bind(cmd.Flags(), "reset")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "reset", phases.Reset(), runnableResetPhase))
	return cmd
}

func runnableResetPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &resetOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: p.Summary,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadReset(cmd, g, o)
			if err != nil {
				return err
			}
			if p.Name == askingPhase {
				if err := confirmReset(cmd.Context(), g, parts.env.Config); err != nil {
					return err
				}
			}
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.BindPhase(cmd.Flags(), "reset", phaseFlags(p.Flags))
	reporting(g, cmd)
	return cmd
}

// loadReset makes what reset works by. Unless the user names the runtime, it
// is the one that the kubelet here has.
func loadReset(cmd *cobra.Command, g *globals, o *resetOptions) (*parts, error) {
	o.Given = given(cmd.Flags())
	if o.Network && g.rootfs != "" {
		return nil, errors.New("--network is about this host's kernel, and --rootfs about the files of another: leave out one of them")
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, err
	}
	if socket := phases.KubeletSocket(real); socket != "" {
		facts.Sockets = []string{strings.TrimPrefix(socket, "unix://")}
	}
	node, warnings, err := config.LoadReset(src, o.Flags, loadOptions(facts, o.DryRun))
	if err != nil {
		return nil, err
	}
	// For the report: both are gone in the end.
	node.Name, node.ControlPlane = phases.ThisNode(real).NodeRegistration.Name, phases.IsControlPlane(real)
	p := newParts(g, node, real, node.DryRun)
	warn(p.env.UI, warnings)
	return p, nil
}
