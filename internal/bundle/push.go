// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Registry says where to push to, and how.
type Registry struct {
	Target    string // a registry, or a path in one: registry.example:5000/k8s
	CAFile    string // certificates to trust beside the system's; may be empty
	PlainHTTP bool   // allow HTTP without TLS
	Say       func(format string, args ...any)
}

// bundleRepository is where below the target the bundle itself goes.
const bundleRepository = "slipway-bundle"

// Push verifies the bundle and pushes its images, so that nodes can pull them
// from there, and then the bundle itself with its signature. docs/bundle.md says
// what is called how. Credentials are those of docker or podman.
func (b *Bundle) Push(ctx context.Context, to Registry) error {
	p, err := b.pusher(ctx, to)
	if err != nil {
		return err
	}
	if err := b.Each(ctx, nil); err != nil {
		return err
	}
	for _, d := range p.destinations {
		if err := p.image(ctx, d); err != nil {
			return errors.Wrapf(err, "cannot push %s to %s", d.image.part, d.ref)
		}
		to.Say("%s", d.ref)
	}
	ref := p.repository(bundleRepository).Tag(b.index.tag())
	if err := p.bundle(ctx, ref); err != nil {
		return errors.Wrapf(err, "cannot push the bundle to %s", ref)
	}
	to.Say("%s", ref)
	return nil
}

// destination is a name that an image gets in the registry.
type destination struct {
	ref   name.Tag
	image *image
}

// push is a push that is under way.
type push struct {
	b            *Bundle
	registry     name.Registry
	prefix       string
	options      []remote.Option
	destinations []destination
	mounts       map[v1.Hash]name.Reference // where the registry has a layer
}

func (b *Bundle) pusher(ctx context.Context, to Registry) (*push, error) {
	var options []name.Option
	if to.PlainHTTP {
		options = append(options, name.Insecure)
	}
	host, prefix, _ := strings.Cut(strings.TrimSuffix(to.Target, "/"), "/")
	registry, err := name.NewRegistry(host, append(options, name.StrictValidation)...)
	if err != nil {
		return nil, fault.WithRemedy(errors.Wrapf(err, "%q is not a registry", to.Target), "name it like registry.example:5000 or registry.example/k8s, without https://")
	}
	transport, err := to.transport()
	if err != nil {
		return nil, err
	}
	p := &push{b: b, registry: registry, prefix: prefix, mounts: map[v1.Hash]name.Reference{}}
	p.options = []remote.Option{remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2)}
	p.destinations, err = p.plan()
	return p, err
}

// transport trusts the registry's certificate, and sends nothing without TLS
// unless that is allowed: not even to the private addresses where registries
// without it are usual.
func (to Registry) transport() (http.RoundTripper, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	if to.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the system's certificates")
		}
		data, err := os.ReadFile(to.CAFile)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the registry's CA")
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, errors.Errorf("%s has no certificate in PEM format", to.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if to.PlainHTTP {
		return t, nil
	}
	return onlyTLS{t}, nil
}

type onlyTLS struct{ http.RoundTripper }

func (t onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fault.New(fmt.Sprintf("the registry %s does not serve HTTPS with a certificate that is trusted", r.URL.Host),
			"name its CA with --registry-ca, or allow HTTP with --plain-http")
	}
	return t.RoundTripper.RoundTrip(r)
}

// repository is one below the target.
func (p *push) repository(path string) name.Repository {
	if p.prefix != "" {
		path = p.prefix + "/" + path
	}
	return p.registry.Repo(path)
}

// plan says where the images go. With a custom image repository, a control plane
// asks for CoreDNS without the directory that it has in the default one.
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

// image pushes an image. A tag that has it for other platforms keeps them.
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
	if len(others) == 0 {
		return remote.Write(d.ref, image, p.options...)
	}
	return remote.WriteIndex(d.ref, withOthers(d.image.descriptor, image, others), p.options...)
}

func (p *push) oci(ctx context.Context, i *image) (v1.Image, error) {
	return newOCIImage(ctx, p.b, i.descriptor.MediaType, i.rawManifest, i.rawConfig, p.mounts)
}

// bundle pushes the image layout's index under the bundle's tag, with all that it
// leads to, and then the signature.
func (p *push) bundle(ctx context.Context, ref name.Tag) error {
	b := p.b
	self, err := newOCIImage(ctx, b, types.OCIManifestSchema1, b.rawManifest, b.rawIndex, nil)
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
