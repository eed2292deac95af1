// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// planUI shows only warnings: the plan shows the rest.
type planUI struct {
	ui.UI
	plan *plan // nil before there is one
}

// Start opens a phase that shows only warnings, too.
func (p planUI) Start(phase string) (ui.UI, func(error)) {
	if p.plan != nil {
		p.plan.enter(phase)
	}
	in, end := p.UI.Start(phase)
	return planUI{in, p.plan}, end
}

// Kept adds a step to a plan that is compared with what is there.
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
func (planUI) Nextf(string, ...any)  {}
func (planUI) Result(string)         {}
func (planUI) Skip(string, string)   {}

// newPlanUI is newUI of a dry run.
func newPlanUI(g *globals) ui.UI {
	if g.report != nil {
		g.report.planned(g)
	}
	return newUI(g)
}

// newUI is the UI that the flags and the terminal ask for.
func newUI(g *globals) ui.UI {
	if g.report != nil {
		return namedUI{g.report.ui}
	}
	return namedUI{plainUI(g)}
}

// warn shows the warnings of loading a configuration.
func warn(u ui.UI, warnings []string) {
	for _, w := range warnings {
		u.Warnf("%s", w)
	}
}

func plainUI(g *globals) ui.UI {
	if t, ok := g.streams.err.(*ui.Terminal); ok {
		if g.verbosity > 0 {
			t.ShowDetails()
		}
		return t
	}
	return ui.NewLines(g.program, g.streams.err, g.streams.out)
}
