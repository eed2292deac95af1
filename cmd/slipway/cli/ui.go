// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/slipway-k8s/slipway/internal/ui"

// NewUI shows progress in the form the user asked for.
func NewUI(g *Globals) ui.UI {
	if g.AsPeer() {
		return peerUI{UI: g.ShownUI()}
	}
	return g.ShownUI()
}

// ShownUI has the program's name, but none of kubeadm's lines.
func (g *Globals) ShownUI() ui.UI {
	if g.Report != nil {
		return namedUI{g.Report.UI, g.Program}
	}
	return namedUI{PlainUI(g, ""), g.Program}
}

func Warn(u ui.UI, warnings []string) {
	for _, w := range warnings {
		u.Warnf("%s", w)
	}
}

// PlainUI is a terminal, or lines for a file.
func PlainUI(g *Globals, command string) ui.UI {
	if t, ok := g.Streams.Err.(*ui.Terminal); ok {
		if g.verbosity > 0 {
			t.ShowDetails()
		}
		return t
	}
	lines := ui.NewLines(g.Streams.Err, g.Streams.Out)
	if command == "up" || command == "down" {
		lines.ShowParts()
	}
	return lines
}
