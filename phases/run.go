// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Options are what a run of a workflow may be told.
type Options struct {
	// Skip names the phases to leave out: NAME or NAME/CHILD.
	Skip []string
	// Serial runs one phase after another, in the order of the workflow.
	Serial bool
}

// Run executes a workflow: each phase once what it needs has ended. Keys are
// generated beside them, as many at a time as there are processors, and first of
// all for the phase that the longest chain of others waits for. The first error
// ends the run. A name to skip that no phase has is an error before anything
// runs.
func Run(ctx context.Context, env *Env, workflow []Phase, opts Options) error {
	return run(ctx, env, workflow, opts, newKey)
}

func run(ctx context.Context, env *Env, workflow []Phase, opts Options, newKey func(*Env) (crypto.Signer, error)) error {
	if err := knowAll(workflow, opts.Skip); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &schedule{env: env, cancel: cancel, ended: make(chan outcome), groups: map[string]*group{}}
	s.flatten(env.Config, workflow, "", order{}, false, opts.Skip)
	s.resolve()
	s.atOnce = 1
	if !opts.Serial {
		s.atOnce, s.processors = len(s.steps), runtime.GOMAXPROCS(0)
		s.weigh()
		s.newKey = newKey
		s.orderKeys()
		// Where keys keep every processor busy, what speaks to systemd and the
		// kubelet would wait for its turn among goroutines, 10 ms each time.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(s.processors + 1))
	}
	return s.run(ctx)
}

// step is a phase without children, as the schedule sees it.
type step struct {
	path   string
	phase  Phase
	reason string // of being skipped
	after  order
	needs  []int // the steps that must have ended
	weight int   // how many steps the longest chain behind this one has
	state  state
	// key brings a phase the new private key that it needs. It is nil where
	// none is needed; keyed is whether the key was handed over.
	key   chan crypto.Signer
	keyed bool
}

// order is what a step comes after: steps that stand before it, and phases by
// their names, which may stand anywhere.
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
	// atOnce is how many steps may run at a time.
	atOnce int
	// keys is how many are still to be generated, by newKey, and processors how
	// many more may be at a time; made are those that were.
	keys, processors int
	newKey           func(*Env) (crypto.Signer, error)
	made             chan madeKey
}

// flatten appends the steps of siblings, which come after before.
func (s *schedule) flatten(n *config.Node, siblings []Phase, parent string, before order, sideBySide bool, skip []string) {
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
		if reason := skipReason(n, p, path, skip); reason != "" {
			s.steps = append(s.steps, &step{path: path, reason: reason, after: after})
		} else if len(p.Children) == 0 {
			s.steps = append(s.steps, &step{path: path, phase: p, after: after})
		} else {
			s.flatten(n, p.Children, path+"/", after, p.SideBySide, skip)
			s.groups[path] = &group{left: len(s.steps) - first}
		}
		previous = order{}
		for i := first; i < len(s.steps); i++ {
			previous.steps = append(previous.steps, i)
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

// resolve finds the steps that the names mean.
func (s *schedule) resolve() {
	for _, st := range s.steps {
		st.needs = append(slices.Clone(st.after.steps), s.below(st.after.names)...)
	}
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

// weigh finds the length of the chain behind each step. No chain is longer than
// there are steps.
func (s *schedule) weigh() {
	for range s.steps {
		for _, st := range s.steps {
			for _, need := range st.needs {
				s.steps[need].weight = max(s.steps[need].weight, st.weight+1)
			}
		}
	}
}

func (s *schedule) run(ctx context.Context) error {
	var first error
	for busy := 0; ; {
		for first == nil && busy < s.atOnce {
			i := s.next()
			if i < 0 {
				break
			}
			s.start(ctx, i)
			busy++
		}
		s.generate()
		if busy == 0 {
			s.endGroups(first)
			if stuck := s.stuck(); first == nil && len(stuck) > 0 {
				return errors.Errorf("the phases %s wait for each other", strings.Join(stuck, ", "))
			}
			return first
		}
		var err error
		select {
		case o := <-s.ended:
			busy--
			s.end(o)
			err = o.err
		case m := <-s.made:
			s.processors++
			err = s.hand(m)
		}
		if err != nil && first == nil {
			first = err
			s.keys = 0
			s.cancel(first)
		}
	}
}

// endGroups ends, from the innermost out, what began and lacks a child that an
// error has kept from beginning.
func (s *schedule) endGroups(err error) {
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(s.groups))) {
		if g := s.groups[path]; g.end != nil {
			g.end(err)
			g.end = nil
		}
	}
}

// stuck are the steps that have not begun.
func (s *schedule) stuck() []string {
	var paths []string
	for _, st := range s.steps {
		if st.state == waiting {
			paths = append(paths, st.path)
		}
	}
	return paths
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
	if st.state != waiting {
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
	err := st.run(ctx, &env)
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
