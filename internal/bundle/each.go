// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// Limits of decompression: memory for each blob, and blobs at a time. docs/bundle.md promises less than 200 MiB for everything.
const (
	mostWindow = 32 << 20
	mostAtOnce = 3
)

// Each reads the whole bundle once and verifies every part. It calls visit with each file, in the index's order, and its
// uncompressed content; nil only verifies. The content ends with io.EOF only if it has the stated size and digest; Each verifies
// the rest that visit doesn't read. An error from visit ends Each. Images are verified, but not visited.
func (b *Bundle) Each(ctx context.Context, visit func(Part, io.Reader) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), mostAtOnce))
	sizes := newSizes(&b.contents)
	group.Go(func() error {
		for _, blob := range b.layers() {
			for _, part := range blob.files {
				if err := b.visit(ctx, blob, part, visit); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, blob := range b.layers() {
		if blob.layer != nil {
			group.Go(func() error { return b.checkLayer(ctx, blob, sizes) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return sizes.check()
}

func (b *Bundle) visit(ctx context.Context, blob *blob, part Part, visit func(Part, io.Reader) error) error {
	opened, err := b.open(ctx, blob, part.Digest, part.Size)
	if err != nil {
		return err
	}
	defer opened.close()
	if visit != nil {
		if err := visit(part, opened); err != nil {
			return err
		}
	}
	return opened.finish()
}

func (b *Bundle) checkLayer(ctx context.Context, blob *blob, sizes *imageSizes) error {
	opened, err := b.open(ctx, blob, blob.layer.diffID, blob.layer.image.Size)
	if err != nil {
		return err
	}
	defer opened.close()
	opened.atMost = true
	if err := opened.finish(); err != nil {
		return err
	}
	sizes.add(blob.Digest, opened.length)
	return nil
}

// content is the uncompressed content of a blob, verified while it is read.
type content struct {
	what   string
	from   io.Reader // decompresses raw
	close  func()
	raw    *verified // the blob itself
	sum    hash.Hash
	digest v1.Hash
	size   int64
	atMost bool // the content may be smaller than size
	length int64
	err    error // the first error, io.EOF included
}

// open starts reading a blob whose content must have this digest and size.
func (b *Bundle) open(ctx context.Context, blob *blob, digest v1.Hash, size int64) (*content, error) {
	raw := b.raw(ctx, blob)
	from, done, err := decompress(raw, blob.MediaType)
	if err != nil {
		return nil, damagedBy(blob.what(), err)
	}
	return &content{what: blob.what(), from: from, close: done, raw: raw, sum: sha256.New(), digest: digest, size: size}, nil
}

// Read returns an error instead of io.EOF if the content is wrong.
func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.from.Read(p)
	c.sum.Write(p[:n])
	c.length += int64(n)
	switch {
	case c.length > c.size:
		n, c.err = 0, fault.New(c.what+" is larger than the bundle's index says", "do not use this bundle")
	case err == io.EOF:
		c.err = c.atEnd()
	case err != nil:
		c.err = c.blame(err)
	}
	return n, c.err
}

func (c *content) atEnd() error {
	switch {
	case c.length != c.size && !c.atMost:
		return fault.New(c.what+" is smaller than the bundle's index says", "get the bundle again")
	case hex.EncodeToString(c.sum.Sum(nil)) != c.digest.Hex:
		return damaged(c.what)
	}
	return io.EOF
}

// blame finds the cause if a blob can't be decompressed or read.
func (c *content) blame(err error) error {
	if c.raw.err != nil && !errors.Is(c.raw.err, io.EOF) {
		return c.raw.err // such as a canceled context
	}
	return damagedBy(c.what, err)
}

// finish reads the rest of the content and of the blob.
func (c *content) finish() error {
	if _, err := io.Copy(io.Discard, c); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c.raw)
	return err
}

// raw is a blob as the bundle has it, verified while it's read.
func (b *Bundle) raw(ctx context.Context, blob *blob) *verified {
	return newVerified(ctx, b.at[blob.Digest], blob.Descriptor, blob.what())
}

// decompress returns a blob's content; done releases its resources.
func decompress(r io.Reader, kind types.MediaType) (content io.Reader, done func(), err error) {
	switch kind {
	case partType, types.OCILayerZStd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(mostWindow))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case types.OCILayer, types.DockerLayer:
		d, err := gzip.NewReader(r)
		return d, func() {}, err
	}
	return r, func() {}, nil
}

// verified reads a blob, and ends with an error if its digest is wrong.
type verified struct {
	ctx    context.Context
	from   io.Reader
	sum    hash.Hash
	digest v1.Hash
	what   string
	err    error
}

func newVerified(ctx context.Context, from *io.SectionReader, d v1.Descriptor, what string) *verified {
	return &verified{ctx: ctx, from: io.NewSectionReader(from, 0, d.Size), sum: sha256.New(), digest: d.Digest, what: what}
}

func (v *verified) Close() error { return nil }

func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	if v.err = v.ctx.Err(); v.err != nil {
		return 0, v.err
	}
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	switch {
	case err == io.EOF && hex.EncodeToString(v.sum.Sum(nil)) != v.digest.Hex:
		v.err = damaged(v.what)
	case err != nil && err != io.EOF:
		v.err = errors.Wrapf(err, "cannot read %s", v.what)
	default:
		v.err = err
	}
	return n, v.err
}
