// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/phases"
)

func newInitPhase(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "phase",
		Short: "Run one phase of init",
		RunE:  requireSubcommand,
	}
	for _, p := range phases.Init() {
		cmd.AddCommand(phaseCommand(g, p, func(p phases.Phase) phases.Phase { return p }))
	}
	return cmd
}

// phaseCommand makes the command of a phase and of its children. wrap puts the
// phase back below its parents, so that progress and errors name it in full.
func phaseCommand(g *globals, p phases.Phase, wrap func(phases.Phase) phases.Phase) *cobra.Command {
	if len(p.Children) == 0 {
		return runnablePhase(g, p, p.Name, wrap)
	}
	cmd := &cobra.Command{Use: p.Name, Short: p.Summary, RunE: requireSubcommand}
	if p.Flags != nil {
		cmd.AddCommand(runnablePhase(g, p, "all", wrap))
	}
	for _, child := range p.Children {
		cmd.AddCommand(phaseCommand(g, child, func(c phases.Phase) phases.Phase {
			parent := p
			parent.Children = []phases.Phase{c}
			return wrap(parent)
		}))
	}
	return cmd
}

func runnablePhase(g *globals, p phases.Phase, use string, wrap func(phases.Phase) phases.Phase) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: p.Summary,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.printManifest {
				return printManifest(cmd, g, o, p)
			}
			_, parts, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			// What skipPhases says is for the whole of init: this phase is
			// asked for by name.
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.bind(cmd.Flags(), p.Flags)
	return cmd
}

// printManifest prints what an add-on phase would install, and does nothing.
func printManifest(cmd *cobra.Command, g *globals, o *initOptions, p phases.Phase) error {
	o.anyHost = true
	_, parts, err := loadInit(cmd, g, o)
	if err != nil {
		return err
	}
	data, err := p.Print(parts.env)
	if err != nil {
		return err
	}
	_, err = g.streams.out.Write(data)
	return err
}

// phaseTree lists phases and their children for help.
func phaseTree(list []phases.Phase, indent string) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s%-*s %s\n", indent, 32-len(indent), p.Name, p.Summary)
		b.WriteString(phaseTree(p.Children, indent+"  "))
	}
	return b.String()
}
