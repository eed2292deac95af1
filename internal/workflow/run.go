// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Options say how to run a workflow.
type Options[E any] struct {
	// Skip names the phases to leave out: NAME or PARENT/CHILD.
	Skip []string
	// Serial runs phases one after another, in the workflow's order.
	Serial bool
	// NewSpare makes a spare while other phases run: something that takes a tenth of a second or more, and that any phase with
	// NeedsSpare can use, such as a private key. It returns a function that puts the spare into a phase's environment. AtOnce is
	// how many may be in progress. Without NewSpare, or in a serial run, phases get no spares.
	NewSpare func(env E) (put func(E) E, err error)
	AtOnce   int
}

// Run executes each phase once the phases it needs have ended. Meanwhile, it makes spares; they go first to the phase with the
// longest chain of others waiting for it. The first error ends the run; it's an *Error, which names the phase. An unknown name in
// Skip is an error before anything runs.
func Run[E Environment[E]](ctx context.Context, env E, phases []Phase[E], opts Options[E]) error {
	if err := checkNames(phases, opts.Skip); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &schedule[E]{env: env, cancel: cancel, ended: make(chan outcome), groups: map[string]*group{}, atOnce: 1}
	s.flatten(phases, "", order{}, false, opts.Skip)
	s.resolve()
	if !opts.Serial {
		s.atOnce = len(s.steps)
		s.weigh()
		if s.newSpare, s.slots = opts.NewSpare, opts.AtOnce; s.newSpare != nil {
			s.orderSpares()
		}
	}
	return s.run(ctx)
}

// run returns the error of a phase that hadn't begun when ctx ended only if no running phase says more.
func (s *schedule[E]) run(ctx context.Context) error {
	var first error
	var begun bool // whether the phase with the first error had begun
	for busy := 0; ; {
		for first == nil && busy < s.atOnce {
			i := s.next()
			if i < 0 {
				break
			}
			s.start(ctx, i)
			busy++
		}
		s.makeSpares()
		if busy == 0 {
			s.endGroups(first)
			if stuck := s.stuck(); first == nil && len(stuck) > 0 {
				return errors.Errorf("the phases %s wait for each other", strings.Join(stuck, ", "))
			}
			return first
		}
		o := outcome{begun: true}
		select {
		case o = <-s.ended:
			busy--
			s.end(o)
		case m := <-s.made:
			s.slots++
			o.err = s.deliverSpare(m)
		}
		if o.err != nil && (first == nil || o.begun && !begun) {
			first, begun = o.err, o.begun
			s.spares = 0
			s.cancel(first)
		}
	}
}

// endGroups ends, from the innermost out, groups that have begun but can't finish because of an error.
func (s *schedule[E]) endGroups(err error) {
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(s.groups))) {
		if g := s.groups[path]; g.end != nil {
			g.end(err)
			g.end = nil
		}
	}
}

// stuck lists the steps that haven't begun.
func (s *schedule[E]) stuck() []string {
	var paths []string
	for _, st := range s.steps {
		if st.state == waiting {
			paths = append(paths, st.path)
		}
	}
	return paths
}

// next returns the step with the longest chain behind it that may begin, or -1.
func (s *schedule[E]) next() int {
	best := -1
	for i, st := range s.steps {
		if s.mayBegin(st) && (best < 0 || st.weight > s.steps[best].weight) {
			best = i
		}
	}
	return best
}

func (s *schedule[E]) mayBegin(st *step[E]) bool {
	if st.state != waiting {
		return false
	}
	return !slices.ContainsFunc(st.needs, func(n int) bool { return s.steps[n].state != done })
}

func (s *schedule[E]) start(ctx context.Context, i int) {
	st := s.steps[i]
	st.state = running
	for path, g := range s.parents(st.path) {
		if g.end == nil {
			_, g.end = s.env.Start(path)
		}
	}
	go func() {
		begun, err := s.execute(ctx, st)
		s.ended <- outcome{i, begun, err}
	}()
}

// parents yields a step's groups, the outermost first.
func (s *schedule[E]) parents(path string) func(yield func(string, *group) bool) {
	return func(yield func(string, *group) bool) {
		for i, c := range path {
			if g, ok := s.groups[path[:i]]; c == '/' && ok && !yield(path[:i], g) {
				return
			}
		}
	}
}

func (s *schedule[E]) execute(ctx context.Context, st *step[E]) (begun bool, err error) {
	if st.reason != "" {
		s.env.Skipped(st.path, st.reason)
		return false, nil
	}
	if err := context.Cause(ctx); err != nil {
		return false, inPhase(err, st.path) // another phase has failed, or the run was interrupted
	}
	env, end := s.env.Start(st.path)
	err = st.run(ctx, env)
	end(err)
	return true, inPhase(err, st.path)
}

func (s *schedule[E]) end(o outcome) {
	s.steps[o.step].state = done
	for _, g := range s.parents(s.steps[o.step].path) {
		g.left--
		if g.end != nil && (g.left == 0 || o.err != nil) {
			g.end(o.err)
			g.end = nil // an error ends a group once, whatever else ends in it
		}
	}
}
