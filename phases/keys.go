// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"crypto/rand"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
)

// unlessThere tells that a new key is needed where none of the files is there:
// whether one that is there is what it should be is for the phase to say.
func unlessThere(files func(env *Env) []string) func(env *Env) bool {
	return func(env *Env) bool {
		for _, path := range files(env) {
			if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	}
}

// newKey generates a private key as the configuration wants it.
func newKey(env *Env) (crypto.Signer, error) {
	return certs.NewKey(env.Config.Cluster.EncryptionAlgorithm, rand.Reader)
}

// orNewKey is the key that was generated for a phase, or one that is generated
// now.
func orNewKey(env *Env, key crypto.Signer) (crypto.Signer, error) {
	if key != nil {
		return key, nil
	}
	return newKey(env)
}

type madeKey struct {
	key crypto.Signer
	err error
}

// orderKeys counts the phases that need a new key. Keys are alike: they are
// generated from the beginning on, and each goes to whoever is waited for most,
// so that no phase waits for its own that is slow to be found.
func (s *schedule) orderKeys() {
	for _, st := range s.steps {
		if st.phase.NeedsKey != nil && st.phase.NeedsKey(s.env) {
			st.key = make(chan crypto.Signer, 1)
			s.keys++
		}
	}
	s.made = make(chan madeKey, s.keys)
}

// generate begins as many keys as there are processors left. What they make
// possible, the kubelet's start and that of containers, goes before the next
// ones. Nobody waits for one that is not wanted any more.
func (s *schedule) generate() {
	for ; s.keys > 0 && s.processors > 0; s.keys-- {
		s.processors--
		go host.InBackground(func() {
			key, err := s.newKey(s.env)
			s.made <- madeKey{key, err}
		})
	}
}

// hand gives a key to the weightiest step that lacks one; of equals to the last,
// which is the nearest to something that takes its time to start.
func (s *schedule) hand(m madeKey) error {
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

// run waits for the key of a phase that needs one.
func (st *step) run(ctx context.Context, env *Env) error {
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
