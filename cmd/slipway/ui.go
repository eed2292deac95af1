// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// planUI says only what an operator must read: the plan says the rest.
type planUI struct {
	ui.UI
	plan *plan // nil before there is one
}

// Start keeps the phases quiet, too.
func (p planUI) Start(phase string) (ui.UI, func(error)) {
	if p.plan != nil {
		p.plan.enter(phase)
	}
	in, end := p.UI.Start(phase)
	return planUI{in, p.plan}, end
}

// Kept is a step of the plan where it is compared with what is there.
func (p planUI) Kept(k ui.Kept) {
	if p.plan == nil || p.plan.now == nil {
		p.Warnf("%s", k)
		return
	}
	s := step{Action: "keep", Path: k.Path, Change: cluster.None, Diff: labelled(k.Title(), "asked for", k.Now, k.Ours), title: "keep " + k.Title()}
	if k.Kind != "" {
		s.Object = &objectRef{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
	}
	if s.Diff == "" {
		s.Diff = k.Summary + "\n"
	}
	p.plan.add(s)
}

func (planUI) Printf(string, ...any) {}
func (planUI) Result(string)         {}
func (planUI) Skip(string, string)   {}

// newPlanUI is newUI of a dry run.
func newPlanUI(g *globals) ui.UI {
	if g.report != nil {
		g.report.planned(g)
	}
	return newUI(g)
}

// newUI is what the user wants to be told with.
func newUI(g *globals) ui.UI {
	if g.report != nil {
		return namedUI{g.report.ui, g.program}
	}
	return namedUI{plainUI(g), g.program}
}

// warn tells what loading a configuration has found.
func warn(u ui.UI, warnings []string) {
	for _, w := range warnings {
		u.Warnf("%s", w)
	}
}

func plainUI(g *globals) ui.UI {
	if f, ok := g.streams.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return ui.NewTerminal(f, g.streams.out)
	}
	return ui.NewLines(g.streams.err, g.streams.out)
}
