// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
)

// others are a tag's images in the registry for other platforms than the bundle's.
func (p *push) others(ref name.Tag) ([]mutate.IndexAddendum, error) {
	there, err := remote.Get(ref, p.options...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !there.MediaType.IsIndex() {
		return p.otherImage(there)
	}
	index, err := there.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var list []mutate.IndexAddendum
	for _, d := range manifest.Manifests {
		if d.Platform == nil || !d.MediaType.IsImage() || d.Platform.Satisfies(p.platform()) {
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		list = append(list, mutate.IndexAddendum{Add: image, Descriptor: d})
	}
	return list, nil
}

func (p *push) platform() v1.Platform {
	return v1.Platform{OS: p.b.index.OS, Architecture: p.b.index.Architecture}
}

// otherImage is the tag's image, if it's for another platform.
func (p *push) otherImage(there *remote.Descriptor) ([]mutate.IndexAddendum, error) {
	image, err := there.Image()
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	platform := config.Platform()
	if platform == nil || platform.Satisfies(p.platform()) {
		return nil, nil
	}
	return []mutate.IndexAddendum{{Add: image, Descriptor: v1.Descriptor{Platform: platform}}}, nil
}

// withOthers is an index of the bundle's image and other platforms'.
func withOthers(descriptor v1.Descriptor, image v1.Image, others []mutate.IndexAddendum) v1.ImageIndex {
	ours := mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: descriptor.Platform}}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	return mutate.AppendManifests(index, append([]mutate.IndexAddendum{ours}, others...)...)
}
