// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"crypto"
)

type madeKey struct {
	key crypto.Signer
	err error
}

// orderKeys counts the phases that need a new key. Keys are interchangeable: generation starts at once, and each key goes to the
// phase with the most others waiting for it, so no phase waits for a slow key of its own.
func (s *schedule[E]) orderKeys() {
	for _, st := range s.steps {
		if st.phase.NeedsKey != nil && st.phase.NeedsKey(s.env) {
			st.key = make(chan crypto.Signer, 1)
			s.keys++
		}
	}
	s.made = make(chan madeKey, s.keys)
}

// generateKeys starts as many keys as may be generated at a time. Nothing waits for a key nobody needs anymore.
func (s *schedule[E]) generateKeys() {
	for ; s.keys > 0 && s.slots > 0; s.keys-- {
		s.slots--
		go func() {
			key, err := s.newKey(s.env)
			s.made <- madeKey{key, err}
		}()
	}
}

// hand gives a key to the step with the longest chain behind it and no key yet; among equals to the last, which is nearest to
// something slow to start.
func (s *schedule[E]) hand(m madeKey) error {
	best := -1
	for i, st := range s.steps {
		if st.key != nil && !st.keyed && (best < 0 || st.weight >= s.steps[best].weight) {
			best = i
		}
	}
	if m.err != nil {
		return inPhase(m.err, s.steps[best].path)
	}
	s.steps[best].keyed = true
	s.steps[best].key <- m.key
	return nil
}

// run gives the phase its key, if it needs one.
func (st *step[E]) run(ctx context.Context, env E) error {
	if st.phase.RunWithKey == nil {
		return st.phase.Run(ctx, env)
	}
	if st.key == nil {
		return st.phase.RunWithKey(ctx, env, nil)
	}
	select {
	case key := <-st.key:
		return st.phase.RunWithKey(ctx, env, key)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
