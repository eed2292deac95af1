// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"slices"
	"strings"
)

// step is a phase without children.
type step[E Environment[E]] struct {
	path   string
	phase  Phase[E]
	reason string // why the phase is left out; empty if it isn't
	after  order
	needs  []int // the steps that must have ended
	weight int   // the length of the longest chain of steps waiting for this step
	state  state
	// spare brings the phase its spare; nil if it needs none. supplied says whether it has been sent.
	spare    chan func(E) E
	supplied bool
}

// order holds a step's needs: steps before it, and named phases anywhere in the workflow.
type order struct {
	steps []int
	names []string
}

func (o order) with(names ...string) order {
	return order{o.steps, slices.Concat(o.names, names)}
}

type state int

const (
	waiting state = iota
	running
	done
)

// group is a phase with children: it lasts from the start of the first step below it to the end of the last.
type group struct {
	left int
	end  func(error)
}

type outcome struct {
	step  int
	begun bool
	err   error
}

type schedule[E Environment[E]] struct {
	env    E
	cancel context.CancelCauseFunc
	steps  []*step[E]
	groups map[string]*group
	ended  chan outcome
	// atOnce is how many steps may run at a time.
	atOnce int
	// spares is how many newSpare still has to make, slots how many more may be in progress at once; made delivers them.
	spares, slots int
	newSpare      func(E) (put func(E) E, err error)
	made          chan madeSpare[E]
}

// flatten appends the steps of siblings, which come after before.
func (s *schedule[E]) flatten(siblings []Phase[E], parent string, before order, sideBySide bool, skip []string) {
	previous := before
	for _, p := range siblings {
		path := parent + p.Name
		after := previous
		switch {
		case len(p.Needs) > 0:
			after = before.with(p.Needs...)
		case sideBySide:
			after = before
		}
		first := len(s.steps)
		if reason := s.skipReason(p, path, skip); reason != "" {
			s.steps = append(s.steps, &step[E]{path: path, reason: reason, after: after})
		} else if len(p.Children) == 0 {
			s.steps = append(s.steps, &step[E]{path: path, phase: p, after: after})
		} else {
			s.flatten(p.Children, path+"/", after, p.SideBySide, skip)
			s.groups[path] = &group{left: len(s.steps) - first}
		}
		previous = order{}
		for i := first; i < len(s.steps); i++ {
			previous.steps = append(previous.steps, i)
		}
	}
}

func (s *schedule[E]) skipReason(p Phase[E], path string, skip []string) string {
	if slices.Contains(skip, path) {
		return "--skip-phases"
	}
	if p.Skip != nil {
		return p.Skip(s.env)
	}
	return ""
}

func (s *schedule[E]) resolve() {
	for _, st := range s.steps {
		st.needs = append(slices.Clone(st.after.steps), s.below(st.after.names)...)
	}
}

// below lists the steps of the named phases. If the workflow lacks a path, a phase is running alone: an earlier run has met its
// needs.
func (s *schedule[E]) below(paths []string) []int {
	var found []int
	for i, st := range s.steps {
		if slices.ContainsFunc(paths, func(p string) bool { return st.path == p || strings.HasPrefix(st.path, p+"/") }) {
			found = append(found, i)
		}
	}
	return found
}

// weigh finds the length of the chain behind each step. No chain is longer than the number of steps.
func (s *schedule[E]) weigh() {
	for range s.steps {
		for _, st := range s.steps {
			for _, need := range st.needs {
				s.steps[need].weight = max(s.steps[need].weight, st.weight+1)
			}
		}
	}
}
