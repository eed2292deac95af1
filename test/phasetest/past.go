// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/phases/step"
)

// Past is a control plane that scenes begin with. It's made once.
type Past struct {
	// Init is the workflow that makes it, Then whatever happens afterwards.
	Init func() []step.Phase
	Then func(h *LastingHost) error

	once sync.Once
	node OldNode
	err  error
}

// Made returns the node, making it if nobody has.
func (p *Past) Made(t *testing.T) (OldNode, error) {
	p.once.Do(func() {
		signed := RotatedPEM(t, "cp-1", time.Now().Add(time.Hour))
		p.node, p.err = makeNode(func(h *LastingHost, endpoint string) error {
			if err := WillMake(h.Root, KubeletPEM, signed); err != nil {
				return err
			}
			if err := RunInit(p.Init)(context.Background(), h, endpoint, io.Discard); err != nil {
				return err
			}
			return p.Then(h)
		})
	})
	return p.node, p.err
}

// Begin puts a scene where the node was left.
func (p *Past) Begin(t *testing.T, s *Scene) error {
	old, err := p.Made(t)
	if err != nil {
		return err
	}
	s.Serves(old.Objects)
	return old.Files.Write(s.Root)
}

// Serves starts the scene's API with these objects.
func (s *Scene) Serves(objects map[string]map[string]any) {
	s.API = OwnAPI(s.Root, nil)
	for path, obj := range objects {
		s.API.Put(path, obj)
	}
	s.API.SpoilFirst(s.Spoil)
}
