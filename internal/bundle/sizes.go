// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// imageSizes collects layers' sizes, for each image's sum.
type imageSizes struct {
	images []*image
	mu     sync.Mutex
	layers map[v1.Hash]int64
}

func newSizes(c *contents) *imageSizes {
	return &imageSizes{images: c.images, layers: map[v1.Hash]int64{}}
}

func (s *imageSizes) add(layer v1.Hash, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers[layer] = size
}

func (s *imageSizes) check() error {
	for _, image := range s.images {
		var sum int64
		for _, d := range image.manifest.Layers {
			sum += s.layers[d.Digest]
		}
		if sum != image.part.Size {
			return fault.New(image.part.String()+" has another size than the bundle's index says", "get the bundle again")
		}
	}
	return nil
}
