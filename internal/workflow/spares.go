// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import "context"

type madeSpare[E any] struct {
	put func(E) E
	err error
}

// orderSpares counts the phases that need a spare. Spares are interchangeable: making them starts at once, and each goes to the
// phase with the most others waiting for it, so no phase waits for a slow spare of its own.
func (s *schedule[E]) orderSpares() {
	for _, st := range s.steps {
		if st.phase.NeedsSpare != nil && st.phase.NeedsSpare(s.env) {
			st.spare = make(chan func(E) E, 1)
			s.spares++
		}
	}
	s.made = make(chan madeSpare[E], s.spares)
}

// makeSpares starts as many spares as may be made at a time. Nothing waits for a spare nobody needs anymore.
func (s *schedule[E]) makeSpares() {
	for ; s.spares > 0 && s.slots > 0; s.spares-- {
		s.slots--
		go func() {
			put, err := s.newSpare(s.env)
			s.made <- madeSpare[E]{put, err}
		}()
	}
}

// deliverSpare gives a spare to the step with the longest chain behind it and no spare yet; among equals to the last, which is
// nearest to something slow to start.
func (s *schedule[E]) deliverSpare(m madeSpare[E]) error {
	best := -1
	for i, st := range s.steps {
		if st.spare != nil && !st.supplied && (best < 0 || st.weight >= s.steps[best].weight) {
			best = i
		}
	}
	if m.err != nil {
		return inPhase(m.err, s.steps[best].path)
	}
	s.steps[best].supplied = true
	s.steps[best].spare <- m.put
	return nil
}

// run puts the phase's spare, if it needs one, into its environment first.
func (st *step[E]) run(ctx context.Context, env E) error {
	if st.spare == nil {
		return st.phase.Run(ctx, env)
	}
	select {
	case put := <-st.spare:
		return st.phase.Run(ctx, put(env))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
