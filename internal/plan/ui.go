// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// UI shows only warnings and questions; everything else is in the plan.
type UI struct {
	ui.UI
	Plan *Plan // nil during discovery
}

// Start keeps the phase's UI quiet, too.
func (p UI) Start(phase string) (ui.UI, func(error)) {
	if p.Plan != nil {
		p.Plan.enter(phase)
	}
	in, end := p.UI.Start(phase)
	return UI{in, p.Plan}, end
}

// Kept adds a step to a plan with --diff, and warns otherwise.
func (p UI) Kept(k ui.Kept) {
	if p.Plan == nil || p.Plan.now == nil {
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
	p.Plan.add(s)
}

func (UI) Printf(string, ...any) {}

func (UI) Nextf(string, ...any) {}

func (UI) Result(string) {}

func (UI) Skip(string, string) {}
