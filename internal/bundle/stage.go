// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"github.com/pkg/errors"
)

// level balances time and size: the next takes three times as long for a bundle a twentieth smaller; both read equally fast.
const level = zstd.SpeedDefault

// maxCompressed limits the parts compressed at a time: each takes some 40 MiB of memory.
const maxCompressed = 2

// file stages a part that isn't an image.
func (s *stage) file(ctx context.Context, listed *ListedPart) (staged, error) {
	content, err := s.open(ctx, listed)
	if err != nil {
		return staged{}, err
	}
	defer content.Close()
	part := listed.part()
	blob, digest, size, err := s.compress(ctx, content, partType)
	if err != nil {
		return staged{}, err
	}
	part.Digest, part.Size = digest, size
	blob.Annotations = map[string]string{annotationTitle: part.title()}
	s.Say("%s: %s, %s compressed", part, bytesText(size), bytesText(blob.Size))
	return staged{part: part, blob: blob}, nil
}

// compress makes a blob of the content, and also returns the content's digest and size.
func (s *stage) compress(ctx context.Context, content io.Reader, kind types.MediaType) (blob v1.Descriptor, digest v1.Hash, size int64, err error) {
	sum := newSum()
	blob, err = s.keep(kind, func(w io.Writer) error {
		z, err := s.encoder()
		if err != nil {
			return err
		}
		defer s.encoders.Put(z)
		z.Reset(w)
		if size, err = io.Copy(io.MultiWriter(z, sum), &interruptible{ctx, content}); err != nil {
			z.Close()
			return errors.Wrap(err, "cannot compress it")
		}
		return z.Close()
	})
	s.made.Store(blob.Digest, sum)
	return blob, sum.digest(), size, err
}

// encoder reuses an encoder if possible: each takes some megabytes.
func (s *stage) encoder() (*zstd.Encoder, error) {
	if z, ok := s.encoders.Get().(*zstd.Encoder); ok {
		return z, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1))
}

// keep makes a blob of write's output.
func (s *stage) keep(kind types.MediaType, write func(io.Writer) error) (v1.Descriptor, error) {
	sum := newSum()
	err := intoPlace(s.dir, func(w io.Writer) error { return write(io.MultiWriter(w, sum)) }, func() string { return s.path(sum.digest()) })
	return v1.Descriptor{MediaType: kind, Digest: sum.digest(), Size: sum.size}, err
}

// intoPlace makes a file appear at a path of the same file system, once it's complete.
func intoPlace(dir string, write func(io.Writer) error, path func() string) error {
	f, err := os.CreateTemp(dir, "blob-")
	if err != nil {
		return errors.Wrap(err, "cannot make a file for a blob")
	}
	defer os.Remove(f.Name()) // fails once it has its final name
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return errors.Wrap(err, "cannot write a blob")
	}
	return errors.Wrap(os.Rename(f.Name(), path()), "cannot put a blob in its place")
}

func copyTo(ctx context.Context, to string, from io.Reader) error {
	copyAll := func(w io.Writer) error {
		_, err := io.Copy(w, &interruptible{ctx, from})
		return errors.Wrap(err, "cannot copy a blob")
	}
	return intoPlace(filepath.Dir(to), copyAll, func() string { return to })
}

func copyFile(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return errors.Wrap(err, "cannot copy a blob")
	}
	defer f.Close()
	return copyTo(ctx, to, f)
}

// sum is the digest and size of everything written to it.
type sum struct {
	hash.Hash
	size int64
}

func newSum() *sum { return &sum{Hash: sha256.New()} }

func (s *sum) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return s.Hash.Write(p)
}

func (s *sum) digest() v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(s.Sum(nil))}
}

func digestOf(data []byte) v1.Hash {
	digest, _, _ := v1.SHA256(bytes.NewReader(data)) // reading memory doesn't fail
	return digest
}

// interruptible is a reader that ends with its context.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// interruptibleWriter is a writer that ends with its context.
type interruptibleWriter struct {
	ctx context.Context
	io.Writer
}

func (w *interruptibleWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}
