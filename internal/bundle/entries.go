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
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// A bundle's entries besides the blobs.
const (
	entryLayout    = "oci-layout"
	entryIndex     = "index.json"
	entrySignature = "index.json.minisig"
)

// blobEntry is a blob's path in an image layout.
func blobEntry(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }

// entries reads the headers of a bundle's tar one after another, and skips the data between them.
type entries struct {
	file   *io.SectionReader
	tar    *tar.Reader
	ahead  *tar.Header // read, and not yet taken
	offset int64       // where the data of the last header begins
	end    int64       // where the last entry ends
	seen   map[string]bool
}

func newEntries(file io.ReaderAt, size int64) *entries {
	section := io.NewSectionReader(file, 0, size)
	return &entries{file: section, tar: tar.NewReader(section), seen: map[string]bool{}}
}

// peek returns the next header without taking it, or nil at the archive's end.
func (e *entries) peek() (*tar.Header, error) {
	if e.ahead != nil {
		return e.ahead, nil
	}
	header, err := e.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, errors.New("the bundle is truncated or damaged: it is no tar archive from here on")
	}
	if err := e.check(header); err != nil {
		return nil, err
	}
	// The tar's reader reads no further than the header, so the file is at the data.
	e.offset, err = e.file.Seek(0, io.SeekCurrent)
	e.ahead = header
	return header, err
}

// check refuses everything but plain files with unique names.
func (e *entries) check(h *tar.Header) error {
	again := "do not use this bundle: Slipway does not make such entries"
	switch {
	case path.IsAbs(h.Name) || strings.Contains("/"+h.Name+"/", "/../"):
		return fault.New(fmt.Sprintf("the bundle has an entry %q, which leads out of it", h.Name), again)
	case h.Typeflag != tar.TypeReg:
		return fault.New(fmt.Sprintf("the bundle has an entry %q that is %s, not a file", h.Name, kindOf(h.Typeflag)), again)
	case e.seen[h.Name]:
		return fault.New(fmt.Sprintf("the bundle has the entry %q twice", h.Name), again)
	}
	for key := range h.PAXRecords {
		if key != "size" { // which files of 8 GiB and more have
			return fault.New(fmt.Sprintf("the bundle has an entry %q with the attribute %q", h.Name, key), again)
		}
	}
	e.seen[h.Name] = true
	return nil
}

func kindOf(flag byte) string {
	switch flag {
	case tar.TypeLink:
		return "a hard link"
	case tar.TypeSymlink:
		return "a symbolic link"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeDir:
		return "a directory"
	case tar.TypeFifo:
		return "a pipe"
	}
	return fmt.Sprintf("of the type %q", flag)
}

// take finds the next entry, which must have this name and an allowed size, and returns its data. what names it in messages.
func (e *entries) take(entry, what string, least, most int64) (*io.SectionReader, error) {
	header, err := e.peek()
	switch {
	case err != nil:
		return nil, errors.Wrapf(err, "looking for %s", what)
	case header == nil:
		return nil, fault.New(fmt.Sprintf("%s is missing: the bundle is truncated", what), "get the bundle again")
	case header.Name != entry:
		return nil, fault.New(fmt.Sprintf("%s is missing: the bundle has the entry %q in its place", what, header.Name),
			"use a bundle as Slipway has made it; one that was unpacked and packed again has its entries in another order")
	case header.Size < least || header.Size > most:
		return nil, fault.New(fmt.Sprintf("%s has %d bytes, which is %s", what, header.Size, limits(least, most)), "get the bundle again")
	}
	// Each entry begins at a new block.
	e.end = e.offset + (header.Size+blockSize-1)/blockSize*blockSize
	if e.offset+header.Size > e.file.Size() {
		return nil, fault.New(fmt.Sprintf("%s is not complete: the bundle is truncated", what), "get the bundle again")
	}
	e.ahead = nil
	return io.NewSectionReader(e.file, e.offset, header.Size), nil
}

func limits(least, most int64) string {
	if least == most {
		return fmt.Sprintf("not the %d that it must have", least)
	}
	return fmt.Sprintf("more than the %d that are allowed", most)
}

// blockSize is the size of a tar's blocks, and maxPadding limits the bytes after its last entry.
const (
	blockSize  = 512
	maxPadding = 1 << 20
)

// finish checks that the archive has an end, and nothing after it.
func (e *entries) finish() error {
	header, err := e.peek()
	if err != nil {
		return err
	}
	if header != nil {
		return fault.New(fmt.Sprintf("the bundle has an entry %q that belongs to no part", header.Name), "do not use this bundle")
	}
	size := e.file.Size() - e.end // negative if the last entry is incomplete
	if size < 2*blockSize {
		return fault.New("the end of the bundle is missing: it is truncated", "get the bundle again")
	}
	padding, err := io.ReadAll(io.NewSectionReader(e.file, e.end, min(size, maxPadding+1)))
	if err != nil {
		return err
	}
	if len(padding) > maxPadding || strings.Trim(string(padding), "\x00") != "" {
		return fault.New("there is trailing data after the end of the bundle", "get the bundle again")
	}
	return nil
}

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
