// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// WriteImages writes an image layout in a tar of only these images, as `ctr images import -` reads it, and verifies them on the
// way. After an error, the output isn't a complete archive.
func (b *Bundle) WriteImages(ctx context.Context, names []string, w io.Writer) error {
	some, err := b.only(names)
	if err != nil {
		return err
	}
	return some.write(w, func(blob *blob) (io.ReadCloser, error) { return b.raw(ctx, blob), nil })
}

func (b *Bundle) only(names []string) (*contents, error) {
	some := &contents{layout: v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}}
	for _, name := range names {
		n := slices.IndexFunc(b.images, func(i *image) bool { return i.part.Name == name })
		if n < 0 {
			return nil, fault.New(fmt.Sprintf("the bundle has no image %s", name), "`slipway bundle inspect` lists its images")
		}
		some.images = append(some.images, b.images[n])
		some.layout.Manifests = append(some.layout.Manifests, b.images[n].descriptor)
	}
	raw, err := json.Marshal(some.layout)
	some.rawLayout = raw
	return some, errors.Wrap(err, "cannot make the index of the images")
}
