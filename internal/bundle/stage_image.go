// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
)

// image stages an image. From a registry or an image layout, it keeps its manifest, and so its publisher's digest. A
// docker-archive has no manifest: its layers are compressed here, and its configuration is kept.
func (s *stage) image(ctx context.Context, listed *ListedPart) (staged, error) {
	source, err := s.findImage(ctx, listed)
	if err != nil {
		return staged{}, err
	}
	defer source.close()
	part := listed.part()
	config, err := source.RawConfigFile()
	if err != nil {
		return staged{}, errors.Wrap(err, "cannot read its configuration")
	}
	keep := s.keepManifest
	if source.fromDocker {
		keep = s.makeManifest
	}
	manifest, kind, err := keep(ctx, source, config)
	if err != nil {
		return staged{}, err
	}
	descriptor := describe(manifest, kind)
	parsed, err := newImage(part, descriptor, manifest, func(v1.Descriptor) ([]byte, error) { return config, nil })
	if err != nil {
		return staged{}, err
	}
	if len(parsed.config.RootFS.DiffIDs) != len(parsed.manifest.Layers) {
		return staged{}, errors.New("its manifest and its configuration differ in the number of layers")
	}
	if part.Size, err = s.checkLayers(ctx, parsed); err != nil {
		return staged{}, err
	}
	descriptor.Annotations = map[string]string{annotationImage: part.Name, annotationRef: part.Name}
	descriptor.Platform = &v1.Platform{OS: s.List.OS, Architecture: s.List.Architecture}
	part.Digest, part.ConfigDigest = descriptor.Digest, &parsed.manifest.Config.Digest
	parsed.part, parsed.descriptor = part, descriptor
	x := Index{OS: s.List.OS, Architecture: s.List.Architecture}
	if err := parsed.check(&x); err != nil {
		return staged{}, err
	}
	s.Say("%s: %s, %s compressed", part, bytesText(part.Size), bytesText(parsed.compressed()))
	return staged{part: part, image: parsed}, nil
}

func (i *image) compressed() (sum int64) {
	for _, d := range i.manifest.Layers {
		sum += d.Size
	}
	return sum
}

// keepManifest copies an image's layers, and returns its manifest unchanged.
func (s *stage) keepManifest(ctx context.Context, source *foundImage, _ []byte) ([]byte, types.MediaType, error) {
	layers, err := source.Layers()
	if err != nil {
		return nil, "", errors.Wrap(err, "cannot read its layers")
	}
	for _, l := range layers {
		if err := s.keepLayer(ctx, l, source.fromRegistry); err != nil {
			return nil, "", err
		}
	}
	kind, err := source.MediaType()
	if err != nil {
		return nil, "", errors.Wrap(err, "cannot read its manifest")
	}
	manifest, err := source.RawManifest()
	return manifest, kind, errors.Wrap(err, "cannot read its manifest")
}

// keepLayer copies a layer unchanged, unless another image has brought it. A registry's also goes into the cache, for later runs.
func (s *stage) keepLayer(ctx context.Context, l v1.Layer, fromRegistry bool) error {
	digest, err := l.Digest()
	if err != nil {
		return errors.Wrap(err, "cannot read a layer")
	}
	if _, err := os.Stat(s.path(digest)); err == nil {
		return nil
	}
	if !fromRegistry {
		return s.copyLayer(ctx, l, digest)
	}
	cached := filepath.Join(s.Cache, digest.Hex)
	if got, err := fileSHA256(ctx, cached); err == nil && got == digest.Hex {
		return copyFile(ctx, cached, s.path(digest))
	}
	if err := s.copyLayer(ctx, l, digest); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Cache, 0o755); err != nil {
		return errors.Wrap(err, "cannot make the cache")
	}
	return copyFile(ctx, s.path(digest), cached)
}

func (s *stage) copyLayer(ctx context.Context, l v1.Layer, digest v1.Hash) error {
	content, err := l.Compressed()
	if err != nil {
		return errors.Wrapf(err, "cannot read layer %s", digest)
	}
	defer content.Close()
	blob, err := s.keep("", func(w io.Writer) error {
		_, err := io.Copy(w, &interruptible{ctx, content})
		return errors.Wrapf(err, "cannot copy layer %s", digest)
	})
	if err == nil && blob.Digest != digest {
		err = damaged("layer " + digest.String())
	}
	return err
}

// makeManifest compresses an image's layers, and returns their manifest.
func (s *stage) makeManifest(ctx context.Context, source *foundImage, config []byte) ([]byte, types.MediaType, error) {
	layers, err := source.Layers()
	if err != nil {
		return nil, "", errors.Wrap(err, "cannot read its layers")
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: describe(config, types.OCIConfigJSON), Layers: []v1.Descriptor{}}
	for _, l := range layers {
		content, err := l.Uncompressed()
		if err != nil {
			return nil, "", errors.Wrap(err, "cannot read a layer")
		}
		blob, _, _, err := s.compress(ctx, content, types.OCILayerZStd)
		content.Close()
		if err != nil {
			return nil, "", err
		}
		m.Layers = append(m.Layers, blob)
	}
	manifest, _, err := encode(m, m.MediaType)
	return manifest, m.MediaType, err
}

// checkLayers compares the layers with the image's configuration, and returns their total size.
func (s *stage) checkLayers(ctx context.Context, i *image) (sum int64, err error) {
	for n, d := range i.manifest.Layers {
		size, err := s.checkLayer(ctx, d, i.config.RootFS.DiffIDs[n])
		if err != nil {
			return 0, err
		}
		sum += size
	}
	return sum, nil
}

func (s *stage) checkLayer(ctx context.Context, d v1.Descriptor, diffID v1.Hash) (int64, error) {
	const untrue = "its layers do not match those in its configuration"
	if content, ok := s.made.Load(d.Digest); ok {
		if content := content.(*sum); content.digest() == diffID {
			return content.size, nil
		}
		return 0, errors.New(untrue)
	}
	f, err := os.Open(s.path(d.Digest))
	if err != nil {
		return 0, errors.Wrapf(err, "layer %s is missing", d.Digest)
	}
	defer f.Close()
	raw := newVerified(ctx, io.NewSectionReader(f, 0, d.Size), d, "layer "+d.Digest.String())
	size, err := checkLayer(raw, d.MediaType, diffID, math.MaxInt64)
	return size, errors.Wrap(err, untrue)
}

func matches(annotations map[string]string, part string) bool {
	for _, key := range []string{annotationImage, annotationRef} {
		if value := annotations[key]; value != "" && (value == part || strings.HasSuffix(part, ":"+value)) {
			return true
		}
	}
	return false
}
