// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Options are what a run of a workflow may be told.
type Options struct {
	// Skip names the phases to leave out: NAME or NAME/CHILD.
	Skip []string
	// Serial runs one phase after another, in the order of the workflow.
	Serial bool
}

// Run executes a workflow: each phase once what it needs has ended; of those
// that compute as many at a time as there are processors, and first of all
// those that the longest chain of others waits for. The first error ends the run. A name to skip that
// no phase has is an error before anything runs.
func Run(ctx context.Context, env *Env, workflow []Phase, opts Options) error {
	if err := knowAll(workflow, opts.Skip); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &schedule{env: env, cancel: cancel, ended: make(chan outcome), groups: map[string]*group{}}
	s.flatten(env.Config, workflow, "", nil, false, opts.Skip)
	s.room, s.processors = 1, 1
	if !opts.Serial {
		s.room, s.processors = len(s.steps), runtime.GOMAXPROCS(0)
		s.weigh()
	}
	return s.run(ctx)
}

// step is a phase without children, as the schedule sees it.
type step struct {
	path   string
	phase  Phase
	reason string // of being skipped
	needs  []int  // the steps that must have ended
	weight int    // how many steps the longest chain behind this one has
	state  state
}

type state int

const (
	waiting state = iota
	running
	done
)

// group is a phase with children: it lasts from the first step below it that
// starts to the last that ends.
type group struct {
	left int
	end  func(error)
}

type outcome struct {
	step int
	err  error
}

type schedule struct {
	env    *Env
	cancel context.CancelCauseFunc
	steps  []*step
	groups map[string]*group
	ended  chan outcome
	// room and processors are how many more steps may run, and how many more
	// of those that compute.
	room, processors int
}

// flatten appends the steps of siblings, which begin after the steps before.
func (s *schedule) flatten(n *config.Node, siblings []Phase, parent string, before []int, sideBySide bool, skip []string) {
	previous := before
	for _, p := range siblings {
		path := parent + p.Name
		needs := previous
		switch {
		case len(p.Needs) > 0:
			needs = append(slices.Clone(before), s.below(p.Needs)...)
		case sideBySide:
			needs = before
		}
		first := len(s.steps)
		if reason := skipReason(n, p, path, skip); reason != "" {
			s.steps = append(s.steps, &step{path: path, reason: reason, needs: needs})
		} else if len(p.Children) == 0 {
			s.steps = append(s.steps, &step{path: path, phase: p, needs: needs})
		} else {
			s.flatten(n, p.Children, path+"/", needs, p.SideBySide, skip)
			s.groups[path] = &group{left: len(s.steps) - first}
		}
		previous = previous[:0:0]
		for i := first; i < len(s.steps); i++ {
			previous = append(previous, i)
		}
	}
}

func skipReason(n *config.Node, p Phase, path string, skip []string) string {
	if slices.Contains(skip, path) {
		return "--skip-phases"
	}
	if p.Skip != nil {
		return p.Skip(n)
	}
	return ""
}

// below lists the steps that the paths name. A path that is not there is of a
// phase that runs alone: what it needs, an earlier run has left.
func (s *schedule) below(paths []string) []int {
	var found []int
	for i, st := range s.steps {
		if slices.ContainsFunc(paths, func(p string) bool { return st.path == p || strings.HasPrefix(st.path, p+"/") }) {
			found = append(found, i)
		}
	}
	return found
}

// weigh finds the length of the chain behind each step. Needs point backwards
// only, so one pass from the end does.
func (s *schedule) weigh() {
	for i := len(s.steps) - 1; i >= 0; i-- {
		for _, need := range s.steps[i].needs {
			s.steps[need].weight = max(s.steps[need].weight, s.steps[i].weight+1)
		}
	}
}

func (s *schedule) run(ctx context.Context) error {
	var first error
	for busy := 0; ; {
		for first == nil {
			i := s.next()
			if i < 0 {
				break
			}
			s.take(i, -1)
			s.start(ctx, i)
			busy++
		}
		if busy == 0 {
			return first
		}
		o := <-s.ended
		busy--
		s.take(o.step, +1)
		s.end(o)
		if o.err != nil && first == nil {
			first = o.err
			s.cancel(first)
		}
	}
}

// take changes the room that is left by that of a step.
func (s *schedule) take(i, by int) {
	s.room += by
	if s.steps[i].phase.Computes {
		s.processors += by
	}
}

// next is the weightiest step that may begin, or -1.
func (s *schedule) next() int {
	best := -1
	for i, st := range s.steps {
		if s.mayBegin(st) && (best < 0 || st.weight > s.steps[best].weight) {
			best = i
		}
	}
	return best
}

func (s *schedule) mayBegin(st *step) bool {
	if st.state != waiting || s.room == 0 || st.phase.Computes && s.processors == 0 {
		return false
	}
	return !slices.ContainsFunc(st.needs, func(n int) bool { return s.steps[n].state != done })
}

func (s *schedule) start(ctx context.Context, i int) {
	st := s.steps[i]
	st.state = running
	for path, g := range s.parents(st.path) {
		if g.end == nil {
			_, g.end = s.env.UI.Start(path)
		}
	}
	go func() { s.ended <- outcome{i, s.execute(ctx, st)} }()
}

// parents yields the groups that a step is part of, the outermost first.
func (s *schedule) parents(path string) func(yield func(string, *group) bool) {
	return func(yield func(string, *group) bool) {
		for i, c := range path {
			if g, ok := s.groups[path[:i]]; c == '/' && ok && !yield(path[:i], g) {
				return
			}
		}
	}
}

func (s *schedule) execute(ctx context.Context, st *step) error {
	if st.reason != "" {
		s.env.UI.Skip(st.path, st.reason)
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return inPhase(err, st.path) // another one's: this one does not begin
	}
	env := *s.env
	var end func(error)
	env.UI, end = s.env.UI.Start(st.path)
	err := st.phase.Run(ctx, &env)
	end(err)
	return inPhase(err, st.path)
}

func (s *schedule) end(o outcome) {
	s.steps[o.step].state = done
	for _, g := range s.parents(s.steps[o.step].path) {
		g.left--
		if g.end != nil && (g.left == 0 || o.err != nil) {
			g.end(o.err)
			g.end = nil // an error ends a group once, whatever still ends in it
		}
	}
}
