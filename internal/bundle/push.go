// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// bundleRepository is the bundle's own path below the target.
const bundleRepository = "slipway-bundle"

// Push verifies the bundle and pushes its images, so that nodes can pull them from there, and then the bundle itself with its
// signature. The target is a registry, or a path in it: registry.example:5000/k8s. docs/bundle.md lists the names there.
func (b *Bundle) Push(ctx context.Context, target string, access Access, say func(format string, args ...any)) error {
	p, err := b.pusher(ctx, target, access)
	if err != nil {
		return err
	}
	if err := b.Each(ctx, nil); err != nil {
		return err
	}
	for _, d := range p.destinations {
		if err := p.image(ctx, d); err != nil {
			return errors.Wrapf(withAccessRemedy(err), "cannot push %s to %s", d.image.part, d.ref)
		}
		say("%s", d.ref)
	}
	ref := p.repository(bundleRepository).Tag(b.index.tag())
	if err := p.bundle(ctx, ref); err != nil {
		return errors.Wrapf(withAccessRemedy(err), "cannot push the bundle to %s", ref)
	}
	say("%s", ref)
	return nil
}

// destination is an image's name in the registry.
type destination struct {
	ref   name.Tag
	image *image
}

type push struct {
	b            *Bundle
	registry     name.Registry
	prefix       string
	options      []remote.Option
	destinations []destination
	mounts       map[v1.Hash]name.Reference // where the registry has a layer
}

func (b *Bundle) pusher(ctx context.Context, target string, access Access) (*push, error) {
	host, prefix, _ := strings.Cut(strings.TrimSuffix(target, "/"), "/")
	registry, err := name.NewRegistry(host, access.names()...)
	if err == nil && strings.Contains(target, "://") {
		err = errors.New("it is a URL")
	}
	if err != nil {
		return nil, fault.WithRemedy(errors.Wrapf(err, "%q is not a registry", target), "name it like registry.example:5000 or registry.example/k8s, without https://")
	}
	options, err := access.options(ctx)
	if err != nil {
		return nil, err
	}
	p := &push{b: b, registry: registry, prefix: prefix, options: options, mounts: map[v1.Hash]name.Reference{}}
	p.destinations, err = p.plan()
	return p, err
}

func (p *push) repository(path string) name.Repository {
	if p.prefix != "" {
		path = p.prefix + "/" + path
	}
	return p.registry.Repo(path)
}

// plan says where the images go. With a custom repository, control planes ask for CoreDNS without its directory in the default.
func (p *push) plan() ([]destination, error) {
	const coreDNS = "registry.k8s.io/coredns/coredns"
	var list []destination
	for _, image := range p.b.images {
		tag, err := name.NewTag(image.part.Name)
		if err != nil {
			return nil, err
		}
		paths := []string{tag.RepositoryStr()}
		if tag.Context().Name() == coreDNS {
			paths = append(paths, "coredns")
		}
		for _, path := range paths {
			ref := p.repository(path).Tag(tag.TagStr())
			same := func(d destination) bool { return d.ref == ref }
			if n := slices.IndexFunc(list, same); n >= 0 && list[n].image.part.Digest != image.part.Digest {
				return nil, fault.New(fmt.Sprintf("%s and %s would both become %s", list[n].image.part, image.part, ref), "make a bundle with one of them")
			}
			if _, err := name.NewTag(ref.Name(), name.StrictValidation); err != nil {
				return nil, errors.Wrapf(err, "%s is not a path in a registry", p.prefix)
			}
			list = append(list, destination{ref, image})
		}
	}
	return list, nil
}

// image pushes an image. If its tag has images for other platforms, they stay.
func (p *push) image(ctx context.Context, d destination) error {
	image, err := p.oci(ctx, d.image)
	if err != nil {
		return err
	}
	for _, layer := range d.image.manifest.Layers {
		if p.mounts[layer.Digest] == nil {
			p.mounts[layer.Digest] = d.ref
		}
	}
	others, err := p.others(d.ref)
	if err != nil {
		return err
	}
	if others == nil {
		return remote.Write(d.ref, image, p.options...)
	}
	ours := mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: d.image.descriptor.Platform}}
	return remote.WriteIndex(d.ref, mutate.AppendManifests(others, ours), p.options...)
}

func (p *push) oci(ctx context.Context, i *image) (v1.Image, error) {
	oci := &ociImage{kind: i.descriptor.MediaType, manifest: i.rawManifest, config: i.rawConfig}
	return oci.from(ctx, p.b, p.mounts)
}

// bundle pushes the image layout's index under the bundle's tag, with everything it leads to, and then the signature.
func (p *push) bundle(ctx context.Context, ref name.Tag) error {
	b := p.b
	oci := &ociImage{kind: types.OCIManifestSchema1, manifest: b.rawManifest, config: b.rawIndex}
	self, err := oci.from(ctx, b, nil)
	if err != nil {
		return err
	}
	index := &ociIndex{&b.contents, map[v1.Hash]v1.Image{b.layout.Manifests[0].Digest: self}}
	for _, i := range b.images {
		if index.children[i.part.Digest], err = p.oci(ctx, i); err != nil {
			return err
		}
	}
	if err := remote.WriteIndex(ref, index, p.options...); err != nil {
		return err
	}
	if b.signature == nil {
		return nil
	}
	signature, err := signatureImage(&b.contents)
	if err != nil {
		return err
	}
	digest, err := signature.Digest()
	if err != nil {
		return err
	}
	return remote.Write(ref.Digest(digest.String()), signature, p.options...)
}

// others is the index of a tag's images in the registry for other platforms than the bundle's; nil if there are none.
func (p *push) others(ref name.Tag) (v1.ImageIndex, error) {
	there, err := remote.Get(ref, p.options...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := indexOf(there)
	if err != nil {
		return nil, err
	}
	ours := v1.Platform{OS: p.b.index.OS, Architecture: p.b.index.Architecture}
	others := mutate.RemoveManifests(index, func(d v1.Descriptor) bool {
		return d.Platform == nil || !d.MediaType.IsImage() || d.Platform.Satisfies(ours)
	})
	manifest, err := others.IndexManifest()
	if err != nil || len(manifest.Manifests) == 0 {
		return nil, err
	}
	return mutate.IndexMediaType(others, types.OCIImageIndex), nil
}

// indexOf is a tag's index, or an index of its only image.
func indexOf(there *remote.Descriptor) (v1.ImageIndex, error) {
	if there.MediaType.IsIndex() {
		return there.ImageIndex()
	}
	image, err := there.Image()
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	only := mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}}
	return mutate.AppendManifests(empty.Index, only), nil
}
