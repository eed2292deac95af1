// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Workflow is a command of several phases, each with a command of its own, too.
type Workflow struct {
	Name   string // the command's, such as "host prepare"
	Phases []step.Phase
	Single func(*cli.Globals, SinglePhase) *cobra.Command
}

// AddTo gives the workflow's command its flags, a report's flags, the list of phases in its help, and the command `phase`.
func (w Workflow) AddTo(cmd *cobra.Command, g *cli.Globals, flags any) {
	cmd.Long += "\n\nIt runs these phases; `" + w.Name + " phase NAME` runs one alone:\n" + PhaseTree(w.Phases, "  ")
	config.Bind(cmd.Flags(), w.Name, flags)
	Reporting(g, cmd)
	phase := cli.Group("phase", "Run a single phase of "+w.Name)
	for _, p := range w.Phases {
		phase.AddCommand(w.phaseCommand(g, p, func(p step.Phase) step.Phase { return p }))
	}
	cmd.AddCommand(phase)
}

// phaseCommand makes the commands of a phase and its children. wrap puts a phase back below its parents.
func (w Workflow) phaseCommand(g *cli.Globals, p step.Phase, wrap func(step.Phase) step.Phase) *cobra.Command {
	if len(p.Children) == 0 || p.Whole {
		return w.Single(g, SinglePhase{p, w.Name, p.Name, wrap})
	}
	cmd := cli.Group(p.Name, p.Summary)
	if p.Flags != nil {
		cmd.AddCommand(w.Single(g, SinglePhase{p, w.Name, "all", wrap}))
	}
	for _, child := range p.Children {
		below := func(c step.Phase) step.Phase {
			parent := p
			parent.Children = []step.Phase{c}
			return wrap(parent)
		}
		cmd.AddCommand(w.phaseCommand(g, child, below))
	}
	return cmd
}

// SinglePhase is a phase run by its own command.
type SinglePhase struct {
	step.Phase

	workflow, use string
	wrap          func(step.Phase) step.Phase
}

// Alone is a workflow of the phase below its parents, so that progress and errors show its full name.
func (p SinglePhase) Alone() []step.Phase { return []step.Phase{p.wrap(p.Phase)} }

// Command makes the phase's command with its flags, --dry-run, and a report's flags.
func (p SinglePhase) Command(g *cli.Globals, flags any, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: p.use, Short: p.Summary, RunE: run}
	names := p.Flags
	if !slices.Contains(names, "dry-run") {
		names = append(slices.Clone(names), "dry-run")
	}
	config.BindPhase(cmd.Flags(), p.workflow, names, flags)
	Reporting(g, cmd)
	return cmd
}

// PhaseTree lists phases and their children for a help text.
func PhaseTree(list []step.Phase, indent string) string {
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintf(&b, "%s%-*s %s\n", indent, 32-len(indent), p.Name, p.Summary)
		b.WriteString(PhaseTree(p.Children, indent+"  "))
	}
	return b.String()
}
