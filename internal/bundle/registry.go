// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// ociImage is a manifest with its blobs, for go-containerregistry to push.
type ociImage struct {
	kind             types.MediaType
	manifest, config []byte
	layers           map[v1.Hash]v1.Layer
}

// from returns the image with the bundle's blobs, which are read when they're pushed. Layers the registry has at a mount needn't be
// sent again.
func (i *ociImage) from(ctx context.Context, b *Bundle, mounts map[v1.Hash]name.Reference) (v1.Image, error) {
	parsed, err := v1.ParseManifest(bytes.NewReader(i.manifest))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a manifest")
	}
	i.layers = map[v1.Hash]v1.Layer{}
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

// Access says how to reach registries. The zero value requires HTTPS with a certificate the system trusts.
type Access struct {
	CAFile    string // certificates to trust beside the system's; may be empty
	PlainHTTP bool   // allow HTTP without TLS
}

func (a Access) names() []name.Option {
	if a.PlainHTTP {
		return []name.Option{name.StrictValidation, name.Insecure}
	}
	return []name.Option{name.StrictValidation}
}

// options are for requests, with the credentials of docker or podman.
func (a Access) options(ctx context.Context) ([]remote.Option, error) {
	transport, err := a.transport()
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2),
	}, err
}

// transport sends nothing without TLS unless allowed, not even to private addresses, where the library would fall back to HTTP.
func (a Access) transport() (http.RoundTripper, error) {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	if a.CAFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the system's certificates")
		}
		data, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read the registry's CA")
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, errors.Errorf("%s has no certificate in PEM format", a.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if a.PlainHTTP {
		return t, nil
	}
	return onlyTLS{t}, nil
}

type onlyTLS struct{ http.RoundTripper }

func (t onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, &noTLSError{r.URL.Host}
	}
	return t.RoundTripper.RoundTrip(r)
}

// noTLSError is its own type because the library joins it with another error in a way that hides remedies.
type noTLSError struct{ registry string }

func (e *noTLSError) Error() string {
	return fmt.Sprintf("the registry %s does not serve HTTPS with a certificate that is trusted", e.registry)
}

func withAccessRemedy(err error) error {
	if errors.As(err, new(*noTLSError)) {
		return fault.WithRemedy(err, "name its CA with --registry-ca, or allow HTTP with --plain-http")
	}
	return err
}
