// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Limits of the data held in memory while a bundle is read.
const (
	maxDocument  = 4 << 20  // bytes of an index, a manifest or a configuration
	maxDocuments = 16 << 20 // bytes of all of them
	maxSignature = 8 << 10
)

// Bundle is an open bundle whose head has been verified.
type Bundle struct {
	close    func() error
	signedBy string
	contents
	at map[v1.Hash]*io.SectionReader // blobs Open has found, but not read
}

// Open reads a bundle's head: its signature, which one of the keys must have made, its index, and its images' manifests. It finds
// all other parts, and leaves reading and verifying them to Each. Close it after use.
func Open(path string, keys Keys) (*Bundle, error) { return OpenPinned(path, keys, "") }

// OpenPinned is Open for the bundle whose file has this digest, sha256:HEX; "" fits any file. Unlike a digest, a signature
// doesn't tell older from newer bundles.
func OpenPinned(path string, keys Keys, digest string) (*Bundle, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Wrap(err, "cannot open the bundle")
	}
	if !info.Mode().IsRegular() {
		return nil, errors.Errorf("%s is no bundle: it is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Wrap(err, "cannot open the bundle")
	}
	var b *Bundle
	from, err := pinned(f, digest)
	if err == nil {
		b, err = read(from, info.Size(), keys)
	}
	if err != nil {
		f.Close()
		return nil, errors.Wrapf(err, "%s", path)
	}
	b.close = f.Close
	return b, nil
}

// pinned checks the digest of a file, unless the digest is empty, and returns the file. Its index, which has the digests of
// everything else, then comes from the bytes that were checked, even if somebody changes the file meanwhile.
func pinned(file *os.File, digest string) (io.ReaderAt, error) {
	if digest == "" {
		return file, nil
	}
	head := &headCopy{from: file}
	return head, checkPin(io.TeeReader(file, head), digest)
}

// headCopy is a file, and a copy of its first bytes: as many as a bundle has at most up to the end of its index.
type headCopy struct {
	head []byte
	from io.ReaderAt
}

func (c *headCopy) Write(p []byte) (int, error) {
	const most = maxDocument + 64<<10
	c.head = append(c.head, p[:min(len(p), most-len(c.head))]...)
	return len(p), nil
}

func (c *headCopy) ReadAt(p []byte, at int64) (n int, err error) {
	if at < int64(len(c.head)) {
		n = copy(p, c.head[at:])
	}
	if n == len(p) {
		return n, nil
	}
	more, err := c.from.ReadAt(p[n:], at+int64(n))
	return n + more, err
}

// checkPin reads all of a file.
func checkPin(file io.Reader, digest string) error {
	want, err := v1.NewHash(strings.ToLower(digest))
	if err != nil {
		return fault.New("the digest "+digest+" is not one such as sha256:4e07…, with 64 hexadecimal digits", "`sha256sum BUNDLE` prints them")
	}
	got, _, err := v1.SHA256(file)
	if err != nil {
		return errors.Wrap(err, "cannot read the bundle")
	}
	if got != want {
		return fault.New("this is not the bundle with the digest "+digest+": its own is "+got.String(), "get the bundle with that digest")
	}
	return nil
}

// Index describes the bundle. Don't change it.
func (b *Bundle) Index() Index { return b.index }

// SignedBy names the trusted key that signed the bundle; it's empty if no key is trusted.
func (b *Bundle) SignedBy() string { return b.signedBy }

func (b *Bundle) Close() error { return b.close() }

// Fits returns an error unless the bundle is for this platform, in Go's words.
func (b *Bundle) Fits(system, architecture string) error {
	if want := system + "/" + architecture; b.index.platform() != want {
		return fault.New(fmt.Sprintf("the bundle is for %s, and this host is %s", b.index.platform(), want),
			fmt.Sprintf("get the bundle of %s for %s", b.index.KubernetesVersion, want))
	}
	return nil
}

// read is Open for any file.
func read(file io.ReaderAt, size int64, keys Keys) (*Bundle, error) {
	b := &Bundle{at: map[v1.Hash]*io.SectionReader{}}
	h := &head{entries: newEntries(file, size), budget: maxDocuments}
	if err := b.readIndex(h, keys); err != nil {
		return nil, err
	}
	if err := b.readDocuments(h); err != nil {
		return nil, err
	}
	for _, blob := range b.layers() {
		where, err := h.take(blobEntry(blob.Digest), blob.what(), blob.Size, blob.Size)
		if err != nil {
			return nil, err
		}
		b.at[blob.Digest] = where
	}
	return b, h.finish()
}

// readIndex reads everything before the blobs.
func (b *Bundle) readIndex(h *head, keys Keys) error {
	layout, err := h.document(entryLayout, "the file "+entryLayout, maxSignature)
	if err != nil {
		return fault.WithRemedy(errors.WithMessage(err, "not a bundle"), "name a file that `slipway bundle create` has made")
	}
	if string(layout) != layoutFile {
		return errors.Errorf("not a bundle: %s has the wrong content", entryLayout)
	}
	if b.rawLayout, err = h.document(entryIndex, entryIndex, maxDocument); err != nil {
		return err
	}
	if next, err := h.peek(); err == nil && next != nil && next.Name == entrySignature {
		if b.signature, err = h.document(entrySignature, "the signature", maxSignature); err != nil {
			return err
		}
	}
	// An index isn't parsed before its signature is verified.
	if b.signedBy, err = keys.verify(b.rawLayout, b.signature); err != nil {
		return err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(b.rawLayout))
	if err != nil {
		return errors.Wrapf(err, "not a bundle: %s", entryIndex)
	}
	b.layout = *index
	return b.checkLayout()
}

// readDocuments reads the bundle's manifest and index, and the images' manifests and configurations.
func (b *Bundle) readDocuments(h *head) (err error) {
	if b.rawManifest, err = h.blob(b.layout.Manifests[0], "the bundle's manifest"); err != nil {
		return err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(b.rawManifest))
	if err != nil {
		return errors.Wrap(err, "the bundle's manifest")
	}
	b.manifest = *manifest
	if b.rawIndex, err = h.blob(manifest.Config, "the bundle's index"); err != nil {
		return err
	}
	if err := decodeStrictly(b.rawIndex, &b.index); err != nil {
		return fault.WithRemedy(errors.Wrap(err, "the bundle's index"), "use the Slipway that made the bundle, or a newer one")
	}
	if err := b.index.validate(); err != nil {
		return err
	}
	if err := b.checkManifest(); err != nil {
		return err
	}
	for i, part := range b.index.images() {
		image, err := readImage(h, part, b.layout.Manifests[i+1])
		if err != nil {
			return err
		}
		if err := image.check(&b.index); err != nil {
			return err
		}
		b.images = append(b.images, image)
	}
	return b.checkBlobs()
}

func readImage(h *head, part Part, descriptor v1.Descriptor) (*image, error) {
	raw, err := h.blob(descriptor, part.String()+" (manifest)")
	if err != nil {
		return nil, err
	}
	return newImage(part, descriptor, raw, func(d v1.Descriptor) ([]byte, error) { return h.blob(d, part.String()+" (configuration)") })
}

// head reads small documents. Two images may share them.
type head struct {
	*entries
	budget int64
	blobs  map[v1.Hash][]byte
}

func (h *head) document(entry, what string, most int64) ([]byte, error) {
	return h.read(entry, what, 0, most)
}

func (h *head) read(entry, what string, least, most int64) ([]byte, error) {
	if most > h.budget {
		return nil, errors.Errorf("%s: the manifests and configurations of the bundle have more than the %d MiB that are allowed", what, maxDocuments>>20)
	}
	where, err := h.take(entry, what, least, most)
	if err != nil {
		return nil, err
	}
	h.budget -= where.Size()
	data := make([]byte, where.Size())
	_, err = io.ReadFull(where, data)
	return data, errors.Wrapf(err, "cannot read %s", what)
}

// blob reads and verifies a blob, unless it already has.
func (h *head) blob(d v1.Descriptor, what string) ([]byte, error) {
	if data, ok := h.blobs[d.Digest]; ok {
		return data, sameSize(what, int64(len(data)), d.Size)
	}
	if d.Digest.Algorithm != "sha256" || d.Size < 0 || d.Size > maxDocument {
		return nil, errors.Errorf("%s has a wrong digest, or more than %d MiB", what, maxDocument>>20)
	}
	data, err := h.read(blobEntry(d.Digest), what, d.Size, d.Size)
	if err != nil {
		return nil, err
	}
	if digestOf(data) != d.Digest {
		return nil, damaged(what)
	}
	if h.blobs == nil {
		h.blobs = map[v1.Hash][]byte{}
	}
	h.blobs[d.Digest] = data
	return data, nil
}

func sameSize(what string, got, want int64) error {
	if got != want {
		return errors.Errorf("%s has %d bytes instead of %d", what, got, want)
	}
	return nil
}

func damaged(what string) error {
	return fault.New(what+" is damaged: its content does not match its digest", "get the bundle again")
}

// damagedBy is damaged for content that couldn't even be decompressed.
func damagedBy(what string, err error) error {
	d := damaged(what)
	return fault.WithRemedy(errors.WithMessage(err, d.Error()), fault.Remedy(d))
}

// decodeStrictly accepts one JSON document without unknown fields.
func decodeStrictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one document")
	}
	return nil
}
