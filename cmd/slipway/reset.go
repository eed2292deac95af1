// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases"
)

func newReset(g *globals) *cobra.Command {
	o := &resetOptions{}
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Undo what init or join did to this host",
		Long: "Undo what init or join did to this host: its Pods are stopped, and its certificates, settings and copy of the\n" +
			"cluster's data are deleted. It continues if the rest of the cluster cannot be reached.\n\n" +
			"It runs these phases in order; `reset phase NAME` runs one alone:\n" + phaseTree(phases.Reset(), "  "),
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := loadReset(cmd, g, o)
			if err != nil {
				return err
			}
			skip := p.env.Config.SkipPhases
			if !slices.Contains(skip, askingPhase) {
				if err := confirmReset(cmd.Context(), g, p, undoesNode); err != nil {
					return err
				}
			}
			return p.run(cmd.Context(), phases.Reset(), skip)
		},
	}
	o.Bind(cmd.Flags(), "reset")
	reporting(g, cmd)
	cmd.AddCommand(newPhase(g, "reset", phases.Reset(), runnableResetPhase))
	return cmd
}

func runnableResetPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &resetOptions{anyRuntime: !slices.Contains(p.Flags, "cri-socket")}
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
				if err := confirmReset(cmd.Context(), g, parts, undoesNode); err != nil {
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

func loadReset(cmd *cobra.Command, g *globals, o *resetOptions) (*parts, error) {
	o.Given = given(cmd.Flags())
	return o.load(cmd, g)
}

// load loads what to reset. The container runtime is the kubelet's unless the user names one.
func (o *resetOptions) load(cmd *cobra.Command, g *globals) (*parts, error) {
	if o.Network && g.rootfs != "" {
		return nil, errors.New("--network is for this host's kernel and --rootfs for another host's files: leave one of them out")
	}
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	if socket := thisnode.KubeletSocket(in.host); socket != "" {
		in.options.Facts.Sockets = []string{strings.TrimPrefix(socket, "unix://")}
	}
	if o.anyRuntime {
		in.anyRuntime()
	}
	node, warnings, err := config.LoadReset(in.file, o.Flags, in.options)
	if err != nil {
		return nil, err
	}
	// For the report, as the files that say so are gone in the end.
	node.Name, node.ControlPlane = thisnode.Current(in.host).NodeRegistration.Name, thisnode.IsControlPlane(in.host)
	p := newParts(g, node, in.host)
	warn(p.env.UI, warnings)
	return p, nil
}
