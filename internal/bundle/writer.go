// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// writer writes an image layout as a tar. The same input gives the same bytes: every entry has the same mode, owner and time.
type writer struct{ tar *tar.Writer }

// write writes the whole archive: the documents, and the blobs that open returns.
func (c *contents) write(to io.Writer, open func(*blob) (io.ReadCloser, error)) error {
	w := &writer{tar.NewWriter(to)}
	if err := w.head(c.rawLayout, c.signature); err != nil {
		return err
	}
	for _, document := range c.documents() {
		d := describe(document, "")
		if err := w.entry(blobEntry(d.Digest), d.Size, bytes.NewReader(document)); err != nil {
			return err
		}
	}
	for _, blob := range c.layers() {
		data, err := open(blob)
		if err != nil {
			return err
		}
		err = w.entry(blobEntry(blob.Digest), blob.Size, data)
		data.Close()
		if err != nil {
			return err
		}
	}
	return errors.Wrap(w.tar.Close(), "cannot write the archive's end")
}

// head writes everything before the blobs; the signature may be nil.
func (w *writer) head(index, signature []byte) error {
	if err := w.entry(entryLayout, int64(len(layoutFile)), strings.NewReader(layoutFile)); err != nil {
		return err
	}
	if err := w.entry(entryIndex, int64(len(index)), bytes.NewReader(index)); err != nil {
		return err
	}
	if signature == nil {
		return nil
	}
	return w.entry(entrySignature, int64(len(signature)), bytes.NewReader(signature))
}

func (w *writer) entry(name string, size int64, data io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if err := w.tar.WriteHeader(header); err != nil {
		return errors.Wrapf(err, "cannot write %s", name)
	}
	_, err := io.Copy(w.tar, data)
	return errors.Wrapf(err, "cannot write %s", name)
}

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
