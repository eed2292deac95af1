// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
)

// ociImage is a manifest with its blobs, for go-containerregistry to push.
type ociImage struct {
	kind             types.MediaType
	manifest, config []byte
	layers           map[v1.Hash]v1.Layer
}

// newOCIImage makes an image whose blobs are read when they're pushed. Layers the registry has at a mount needn't be sent again.
func newOCIImage(ctx context.Context, b *Bundle, kind types.MediaType, manifest, config []byte, mounts map[v1.Hash]name.Reference) (v1.Image, error) {
	parsed, err := v1.ParseManifest(bytes.NewReader(manifest))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a manifest")
	}
	i := &ociImage{kind, manifest, config, map[v1.Hash]v1.Layer{}}
	for _, d := range parsed.Layers {
		layer, err := partial.CompressedToLayer(&ociLayer{ctx, b, d})
		if err != nil {
			return nil, err
		}
		if at := mounts[d.Digest]; at != nil {
			layer = &remote.MountableLayer{Layer: layer, Reference: at}
		}
		i.layers[d.Digest] = layer
	}
	return partial.CompressedToImage(i)
}

func (i *ociImage) RawManifest() ([]byte, error)        { return i.manifest, nil }
func (i *ociImage) RawConfigFile() ([]byte, error)      { return i.config, nil }
func (i *ociImage) MediaType() (types.MediaType, error) { return i.kind, nil }
func (i *ociImage) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if l, ok := i.layers[digest]; ok {
		return l, nil
	}
	return nil, errors.Errorf("there is no layer %s", digest)
}

type ociLayer struct {
	ctx        context.Context
	bundle     *Bundle
	descriptor v1.Descriptor
}

func (l *ociLayer) Digest() (v1.Hash, error)            { return l.descriptor.Digest, nil }
func (l *ociLayer) Size() (int64, error)                { return l.descriptor.Size, nil }
func (l *ociLayer) MediaType() (types.MediaType, error) { return l.descriptor.MediaType, nil }
func (l *ociLayer) Descriptor() (*v1.Descriptor, error) { return &l.descriptor, nil }
func (l *ociLayer) Compressed() (io.ReadCloser, error) {
	return l.bundle.raw(l.ctx, &blob{Descriptor: l.descriptor, files: []Part{{Name: l.descriptor.Digest.String(), Type: "blob"}}}), nil
}

// ociIndex is the index of the bundle's image layout, with all its images.
type ociIndex struct {
	*contents
	children map[v1.Hash]v1.Image
}

func (x *ociIndex) MediaType() (types.MediaType, error)       { return types.OCIImageIndex, nil }
func (x *ociIndex) Digest() (v1.Hash, error)                  { return digestOf(x.rawLayout), nil }
func (x *ociIndex) Size() (int64, error)                      { return int64(len(x.rawLayout)), nil }
func (x *ociIndex) IndexManifest() (*v1.IndexManifest, error) { return &x.layout, nil }
func (x *ociIndex) RawManifest() ([]byte, error)              { return x.rawLayout, nil }
func (x *ociIndex) Image(digest v1.Hash) (v1.Image, error) {
	if i, ok := x.children[digest]; ok {
		return i, nil
	}
	return nil, errors.Errorf("the bundle has no manifest %s", digest)
}
func (x *ociIndex) ImageIndex(digest v1.Hash) (v1.ImageIndex, error) {
	return nil, errors.Errorf("the bundle has no index %s", digest)
}

// signatureImage is an artifact with the signature, and refers to the index.
func signatureImage(c *contents) (v1.Image, error) {
	empty := []byte("{}")
	subject := describe(c.rawLayout, types.OCIImageIndex)
	signature := describe(c.signature, signatureType)
	signature.Annotations = map[string]string{annotationTitle: entrySignature}
	manifest, _, err := encode(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(signatureType),
		Config: describe(empty, types.OCIEmptyJSON), Layers: []v1.Descriptor{signature}, Subject: &subject,
	}, types.OCIManifestSchema1)
	if err != nil {
		return nil, err
	}
	layers := map[v1.Hash]v1.Layer{signature.Digest: static.NewLayer(c.signature, signatureType)}
	return partial.CompressedToImage(&ociImage{types.OCIManifestSchema1, manifest, empty, layers})
}
