// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
)

const layoutFile = `{"imageLayoutVersion":"1.0.0"}`

// contents are a bundle's documents, which lead to the blobs. From the outside in: the image layout's index, the bundle's
// manifest, and its configuration, which is the bundle's index.
type contents struct {
	layout      v1.IndexManifest
	rawLayout   []byte
	signature   []byte // of rawLayout; nil if there is none
	manifest    v1.Manifest
	rawManifest []byte
	index       Index
	rawIndex    []byte
	images      []*image
}

type image struct {
	part        Part
	descriptor  v1.Descriptor
	manifest    *v1.Manifest
	config      *v1.ConfigFile
	rawManifest []byte
	rawConfig   []byte
}

func newImage(part Part, descriptor v1.Descriptor, rawManifest []byte, read func(config v1.Descriptor) ([]byte, error)) (*image, error) {
	manifest, err := v1.ParseManifest(bytes.NewReader(rawManifest))
	if err != nil {
		return nil, errors.Wrapf(err, "%s: manifest", part)
	}
	rawConfig, err := read(manifest.Config)
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(rawConfig))
	return &image{part, descriptor, manifest, config, rawManifest, rawConfig}, errors.Wrapf(err, "%s: configuration", part)
}

// blob holds files, or a layer of images.
type blob struct {
	v1.Descriptor
	files []Part
	layer *layer
}

// layer is an image's. Other images may share it.
type layer struct {
	image  Part
	diffID v1.Hash
}

// what names a blob after its part.
func (b *blob) what() string {
	if len(b.files) > 0 {
		return b.files[0].String()
	}
	return fmt.Sprintf("%s (layer %s)", b.layer.image, b.Digest)
}

// layers are the blobs that aren't documents, each once, in a bundle's order: the files', then the images'.
func (c *contents) layers() []*blob {
	var list []*blob
	known := map[v1.Hash]*blob{}
	add := func(d v1.Descriptor) *blob {
		if known[d.Digest] == nil {
			known[d.Digest] = &blob{Descriptor: d}
			list = append(list, known[d.Digest])
		}
		return known[d.Digest]
	}
	for i, part := range c.index.files() {
		b := add(c.manifest.Layers[i])
		b.files = append(b.files, part)
	}
	for _, image := range c.images {
		for i, d := range image.manifest.Layers {
			add(d).layer = &layer{image.part, image.config.RootFS.DiffIDs[i]}
		}
	}
	return list
}

// documents are the blobs Open reads, each once, in a bundle's order.
func (c *contents) documents() [][]byte {
	all := [][]byte{c.rawManifest, c.rawIndex}
	for _, image := range c.images {
		all = append(all, image.rawManifest, image.rawConfig)
	}
	var once [][]byte
	for _, document := range all {
		if document != nil && !slices.ContainsFunc(once, func(d []byte) bool { return bytes.Equal(d, document) }) {
			once = append(once, document)
		}
	}
	return once
}

// checkLayout checks the form of the image layout's index: the bundle comes first, then its images.
func (c *contents) checkLayout() error {
	for i, d := range c.layout.Manifests {
		switch {
		case i == 0 && (d.ArtifactType != artifactType || d.MediaType != types.OCIManifestSchema1):
			return errors.Errorf("not a bundle: the first manifest of %s is not of the type %s", entryIndex, artifactType)
		case i > 0 && d.MediaType != types.OCIManifestSchema1 && d.MediaType != types.DockerManifestSchema2:
			return errors.Errorf("manifest %d of %s is of the type %q, which is not an image's", i+1, entryIndex, d.MediaType)
		}
	}
	if len(c.layout.Manifests) == 0 {
		return errors.Errorf("not a bundle: %s has no manifest", entryIndex)
	}
	return nil
}

// checkManifest compares the bundle's index with the lists of blobs: its manifest for files, the image layout's index for images.
func (c *contents) checkManifest() error {
	files, images := c.index.files(), c.index.images()
	if c.manifest.Config.MediaType != indexType || len(c.manifest.Layers) != len(files) || len(c.layout.Manifests) != len(images)+1 {
		return errors.Errorf("the bundle's manifest has %d files and %d images, and its index %d and %d",
			len(c.manifest.Layers), len(c.layout.Manifests)-1, len(files), len(images))
	}
	for i, part := range files {
		d := c.manifest.Layers[i]
		if d.MediaType != partType || d.Annotations[annotationTitle] != part.title() {
			return errors.Errorf("%s is not at its place in the bundle's manifest", part)
		}
	}
	for i, part := range images {
		d := c.layout.Manifests[i+1]
		if d.Digest != part.Digest || d.Annotations[annotationImage] != part.Name {
			return errors.Errorf("%s is not at its place in %s", part, entryIndex)
		}
	}
	return nil
}

// layerTypes are the layers Slipway can verify.
var layerTypes = []types.MediaType{types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer}

func (i *image) check(x *Index) error {
	if i.manifest.Config.Digest != *i.part.ConfigDigest {
		return errors.Errorf("%s has another configuration than the bundle's index says", i.part)
	}
	if platform := i.config.OS + "/" + i.config.Architecture; platform != x.platform() {
		return errors.Errorf("%s is for %s, and the bundle for %s", i.part, platform, x.platform())
	}
	if len(i.config.RootFS.DiffIDs) != len(i.manifest.Layers) {
		return errors.Errorf("%s has %d layers in its manifest, and %d in its configuration", i.part, len(i.manifest.Layers), len(i.config.RootFS.DiffIDs))
	}
	for _, d := range i.manifest.Layers {
		if !slices.Contains(layerTypes, d.MediaType) {
			return errors.Errorf("%s has a layer of the unknown type %q", i.part, d.MediaType)
		}
	}
	return nil
}

// checkBlobs refuses digests that mean different things in different places. Two names of the same compression, Docker's and
// OCI's, mean the same: images that share a layer may come from different tools.
func (c *contents) checkBlobs() error {
	documents := map[v1.Hash]bool{c.manifest.Config.Digest: true}
	for _, d := range c.layout.Manifests {
		documents[d.Digest] = true
	}
	for _, image := range c.images {
		documents[image.manifest.Config.Digest] = true
	}
	type meaning struct {
		size        int64
		content     v1.Hash
		compression types.MediaType
	}
	known := map[v1.Hash]meaning{}
	check := func(p Part, d v1.Descriptor, content v1.Hash) error {
		m := meaning{d.Size, content, compressionOf(d.MediaType)}
		before, ok := known[d.Digest]
		if d.Digest.Algorithm != "sha256" || d.Size < 0 || documents[d.Digest] || ok && before != m {
			return errors.Errorf("%s has a blob with a wrong digest or size", p)
		}
		known[d.Digest] = m
		return nil
	}
	for i, part := range c.index.files() {
		if err := check(part, c.manifest.Layers[i], part.Digest); err != nil {
			return err
		}
	}
	for _, image := range c.images {
		for i, d := range image.manifest.Layers {
			if err := check(image.part, d, image.config.RootFS.DiffIDs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
