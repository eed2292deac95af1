// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
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
	maxWindow  = 32 << 20
	maxWorkers = 3
)

// Each reads the whole bundle once and verifies every part. It calls visit with each file, in the index's order, and its
// uncompressed content; nil only verifies. The content ends with io.EOF only if it has the stated size and digest; Each verifies
// the rest that visit doesn't read. An error from visit ends Each. Images are verified, but not visited.
func (b *Bundle) Each(ctx context.Context, visit func(Part, io.Reader) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(runtime.GOMAXPROCS(0), maxWorkers))
	blobs := b.layers()
	group.Go(func() error {
		for _, blob := range blobs {
			for _, part := range blob.files {
				if err := b.visit(ctx, blob, part, visit); err != nil {
					return err
				}
			}
		}
		return nil
	})
	lengths := make([]int64, len(blobs))
	for i, blob := range blobs {
		if blob.layer != nil {
			group.Go(func() (err error) {
				lengths[i], err = checkLayer(b.raw(ctx, blob), blob.MediaType, blob.layer.diffID, blob.layer.image.Size)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return b.checkSizes(blobs, lengths)
}

// checkSizes compares the sum of each image's layers, whose lengths are given in order of the blobs, with the index.
func (b *Bundle) checkSizes(blobs []*blob, lengths []int64) error {
	length := map[v1.Hash]int64{}
	for i, blob := range blobs {
		length[blob.Digest] = lengths[i]
	}
	for _, image := range b.images {
		var sum int64
		for _, d := range image.manifest.Layers {
			sum += length[d.Digest]
		}
		if sum != image.part.Size {
			return fault.New(image.part.String()+" has another size than the bundle's index says", "get the bundle again")
		}
	}
	return nil
}

func (b *Bundle) visit(ctx context.Context, blob *blob, part Part, visit func(Part, io.Reader) error) error {
	opened, err := openContent(b.raw(ctx, blob), blob.MediaType, part.Digest, part.Size)
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

// checkLayer returns the length of a layer's content, which may be up to most.
func checkLayer(raw *verified, kind types.MediaType, diffID v1.Hash, most int64) (length int64, err error) {
	opened, err := openContent(raw, kind, diffID, most)
	if err != nil {
		return 0, err
	}
	defer opened.close()
	opened.atMost = true
	err = opened.finish()
	return opened.sum.size, err
}

// raw is a blob as the bundle has it, verified while it's read.
func (b *Bundle) raw(ctx context.Context, blob *blob) *verified {
	return newVerified(ctx, b.at[blob.Digest], blob.Descriptor, blob.what())
}

// verified reads data, and ends with an error if its digest or size is wrong.
type verified struct {
	what   string
	from   io.Reader
	sum    *sum
	digest v1.Hash
	size   int64
	atMost bool              // the data may be smaller than size
	blame  func(error) error // explains an error of from
	err    error             // the first error, io.EOF included
}

func newVerified(ctx context.Context, from *io.SectionReader, d v1.Descriptor, what string) *verified {
	return &verified{
		what: what, from: &interruptible{ctx, io.NewSectionReader(from, 0, d.Size)}, sum: newSum(), digest: d.Digest, size: d.Size, atMost: true,
		blame: func(err error) error { return errors.Wrapf(err, "cannot read %s", what) },
	}
}

func (v *verified) Close() error { return nil }

// Read returns an error instead of io.EOF if the data is wrong.
func (v *verified) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	n, err := v.from.Read(p)
	_, _ = v.sum.Write(p[:n])
	switch v.err = err; {
	case v.sum.size > v.size:
		n, v.err = 0, fault.New(v.what+" is larger than the bundle's index says", "do not use this bundle")
	case err == nil:
	case err != io.EOF:
		v.err = v.blame(err)
	case v.sum.size != v.size && !v.atMost:
		v.err = fault.New(v.what+" is smaller than the bundle's index says", "get the bundle again")
	case v.sum.digest() != v.digest:
		v.err = damaged(v.what)
	}
	return n, v.err
}

// content is the uncompressed content of a blob.
type content struct {
	*verified
	raw   *verified // the blob itself
	close func()
}

// openContent starts reading a blob whose content must have this digest and size.
func openContent(raw *verified, kind types.MediaType, digest v1.Hash, size int64) (*content, error) {
	from, done, err := decompress(raw, kind)
	if err != nil {
		return nil, damagedBy(raw.what, err)
	}
	blame := func(err error) error {
		if raw.err != nil && !errors.Is(raw.err, io.EOF) { // such as a canceled context
			return raw.err
		}
		return damagedBy(raw.what, err)
	}
	return &content{&verified{what: raw.what, from: from, sum: newSum(), digest: digest, size: size, blame: blame}, raw, done}, nil
}

// finish reads the rest of the content and of the blob.
func (c *content) finish() error {
	if _, err := io.Copy(io.Discard, c); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c.raw)
	return err
}

// compressionOf is OCI's name for the layers that are compressed like a blob of this type.
func compressionOf(kind types.MediaType) types.MediaType {
	switch kind {
	case partType:
		return types.OCILayerZStd
	case types.DockerLayer:
		return types.OCILayer
	case types.DockerUncompressedLayer:
		return types.OCIUncompressedLayer
	}
	return kind
}

// decompress returns a blob's content; done releases its resources.
func decompress(r io.Reader, kind types.MediaType) (content io.Reader, done func(), err error) {
	switch compressionOf(kind) {
	case types.OCILayerZStd:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case types.OCILayer:
		d, err := gzip.NewReader(r)
		return d, func() {}, err
	}
	return r, func() {}, nil
}
