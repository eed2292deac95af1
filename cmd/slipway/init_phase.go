// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/phases"
)

// newPhase makes the command `phase`, whose subcommands run single phases of a workflow.
func newPhase(g *globals, of string, workflow []phases.Phase, runnable runnablePhase) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "phase",
		Short: "Run a single phase of " + of,
		RunE:  requireSubcommand,
	}
	for _, p := range workflow {
		cmd.AddCommand(phaseCommand(g, p, wholePhase, runnable))
	}
	return cmd
}

// runnablePhase makes the command that runs a phase.
type runnablePhase func(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command

// wrapPhase puts a phase back below its parents, so that progress and errors show its full name.
type wrapPhase func(phases.Phase) phases.Phase

func wholePhase(p phases.Phase) phases.Phase { return p }

// phaseCommand makes the commands of a phase and its children.
func phaseCommand(g *globals, p phases.Phase, wrap wrapPhase, runnable runnablePhase) *cobra.Command {
	if len(p.Children) == 0 || p.Whole {
		return runnable(g, p, p.Name, wrap)
	}
	cmd := &cobra.Command{Use: p.Name, Short: p.Summary, RunE: requireSubcommand}
	if p.Flags != nil {
		cmd.AddCommand(runnable(g, p, "all", wrap))
	}
	for _, child := range p.Children {
		below := func(c phases.Phase) phases.Phase {
			parent := p
			parent.Children = []phases.Phase{c}
			return wrap(parent)
		}
		cmd.AddCommand(phaseCommand(g, child, below, runnable))
	}
	return cmd
}

func runnableInitPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &initOptions{anyRuntime: !phases.ChoosesRuntime(p)}
	cmd := &cobra.Command{
		Use:   use,
		Short: p.Summary,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.PrintManifest {
				return printManifest(cmd, g, o, p)
			}
			o.onePhase = true
			parts, err := loadInit(cmd, g, o)
			if err != nil {
				return err
			}
			parts.env.Earlier = phases.LookBackAlone(cmd.Context(), parts.env, p)
			// skipPhases is for the whole of init; this phase was asked for by name.
			return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
		},
	}
	o.BindPhase(cmd.Flags(), "init", phaseFlags(p.Flags))
	reporting(g, cmd)
	return cmd
}

// printManifest prints what an add-on phase would install, and does nothing else.
func printManifest(cmd *cobra.Command, g *globals, o *initOptions, p phases.Phase) error {
	o.anyHost = true
	parts, err := loadInit(cmd, g, o)
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

// phaseTree lists phases and their children for a help text.
func phaseTree(list []phases.Phase, indent string) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s%-*s %s\n", indent, 32-len(indent), p.Name, p.Summary)
		b.WriteString(phaseTree(p.Children, indent+"  "))
	}
	return b.String()
}
