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
			skip := p.env.Config.SkipPhases
			if !slices.Contains(skip, askingPhase) {
				if err := confirmReset(cmd.Context(), g, p); err != nil {
					return err
				}
			}
			return p.run(cmd.Context(), phases.Reset(), skip)
		},
	}
	o.bind(cmd.Flags(), resetFlagNames)
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
				if err := confirmReset(cmd.Context(), g, parts); err != nil {
					return err
				}
			}
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.bind(cmd.Flags(), p.Flags)
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
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.configFile)
	if err != nil {
		return nil, err
	}
	if socket := phases.KubeletSocket(in.host); socket != "" {
		in.options.Facts.Sockets = []string{strings.TrimPrefix(socket, "unix://")}
	}
	node, warnings, err := config.LoadReset(in.file, o.ResetFlags, in.options)
	if err != nil {
		return nil, err
	}
	// For the report: both are gone in the end.
	node.Name, node.ControlPlane = phases.ThisNode(in.host).NodeRegistration.Name, phases.IsControlPlane(in.host)
	p := newParts(g, node, in.host)
	warn(p.env.UI, warnings)
	return p, nil
}
