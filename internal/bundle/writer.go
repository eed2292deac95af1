// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/pkg/errors"
)

// writer writes an image layout as a tar. The same input gives the same bytes:
// every entry has the same mode, owner and time.
type writer struct {
	tar     *tar.Writer
	written map[v1.Hash]bool
}

func newWriter(w io.Writer) *writer {
	return &writer{tar: tar.NewWriter(w), written: map[v1.Hash]bool{}}
}

// head writes what comes before the blobs; the signature may be nil.
func (w *writer) head(index, signature []byte) error {
	layout := fmt.Sprintf(`{"imageLayoutVersion":%q}`, layoutVersion)
	if err := w.entry(entryLayout, int64(len(layout)), bytes.NewReader([]byte(layout))); err != nil {
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

// document writes a small blob, unless the archive has it.
func (w *writer) document(data []byte) error {
	digest, size, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return w.blob(v1.Descriptor{Digest: digest, Size: size}, bytes.NewReader(data))
}

// blob writes a blob, unless the archive has it.
func (w *writer) blob(d v1.Descriptor, data io.Reader) error {
	if w.written[d.Digest] {
		return nil
	}
	w.written[d.Digest] = true
	return w.entry(blobEntry(d.Digest), d.Size, data)
}

func (w *writer) entry(name string, size int64, data io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if err := w.tar.WriteHeader(header); err != nil {
		return errors.Wrapf(err, "cannot write %s", name)
	}
	_, err := io.Copy(w.tar, data)
	return errors.Wrapf(err, "cannot write %s", name)
}

func (w *writer) close() error { return errors.Wrap(w.tar.Close(), "cannot write the archive's end") }
