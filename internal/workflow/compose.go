// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import "context"

// Group turns a workflow into one phase of another.
func Group[E Environment[E]](name, summary string, phases []Phase[E]) Phase[E] {
	return Phase[E]{Name: name, Summary: summary, Children: below(name+"/", phases)}
}

// below adjusts the phases' needs to their new place.
func below[E Environment[E]](prefix string, phases []Phase[E]) []Phase[E] {
	moved := make([]Phase[E], len(phases))
	for i, p := range phases {
		needs := p.Needs
		p.Needs = nil
		for _, path := range needs {
			p.Needs = append(p.Needs, prefix+path)
		}
		p.Children = below(prefix, p.Children)
		moved[i] = p
	}
	return moved
}

// WithEnvironment gives the phases the environment made by in from the workflow's.
func WithEnvironment[E Environment[E]](phases []Phase[E], in func(E) E) []Phase[E] {
	changed := make([]Phase[E], len(phases))
	for i, p := range phases {
		if run := p.Run; run != nil {
			p.Run = func(ctx context.Context, env E) error { return run(ctx, in(env)) }
		}
		if needs := p.NeedsSpare; needs != nil {
			p.NeedsSpare = func(env E) bool { return needs(in(env)) }
		}
		if text := p.Print; text != nil {
			p.Print = func(env E) ([]byte, error) { return text(in(env)) }
		}
		if skip := p.Skip; skip != nil {
			p.Skip = func(env E) string { return skip(in(env)) }
		}
		p.Children = WithEnvironment(p.Children, in)
		changed[i] = p
	}
	return changed
}
