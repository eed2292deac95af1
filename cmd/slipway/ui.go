// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// planUI shows only what an operator must read: the rest is in the plan.
type planUI struct {
	ui.UI
	plan *plan // nil during discovery
}

// Start keeps the UI of the phase quiet, too.
func (p planUI) Start(phase string) (ui.UI, func(error)) {
	if p.plan != nil {
		p.plan.enter(phase)
	}
	in, end := p.UI.Start(phase)
	return planUI{in, p.plan}, end
}

// Kept is a step of a plan with --diff, and a warning otherwise.
func (p planUI) Kept(k ui.Kept) {
	if p.plan == nil || p.plan.now == nil {
		k.Warn(p.UI)
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
func (planUI) Nextf(string, ...any)  {}
func (planUI) Result(string)         {}
func (planUI) Skip(string, string)   {}

// newPlanUI is newUI for a plan, which is the only output.
func newPlanUI(g *globals) ui.UI {
	if g.report != nil {
		g.report.planned(g)
	}
	return g.shownUI()
}

// newUI shows progress in the form that the user asked for.
func newUI(g *globals) ui.UI {
	if g.asPeer() {
		return peerUI{UI: g.shownUI()}
	}
	return g.shownUI()
}

func (g *globals) shownUI() ui.UI {
	if g.report != nil {
		return namedUI{g.report.ui, g.program}
	}
	return namedUI{plainUI(g, ""), g.program}
}

// warn shows what was found while loading a configuration.
func warn(u ui.UI, warnings []string) {
	for _, w := range warnings {
		u.Warnf("%s", w)
	}
}

func plainUI(g *globals, command string) ui.UI {
	if t, ok := g.streams.err.(*ui.Terminal); ok {
		if g.verbosity > 0 {
			t.ShowDetails()
		}
		return t
	}
	lines := ui.NewLines(g.streams.err, g.streams.out)
	if command == "up" || command == "down" {
		lines.ShowParts()
	}
	return lines
}
