// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// local returns the path of a part's file, downloads it if necessary, and checks the list's SHA-256.
func (s *stage) local(ctx context.Context, p *ListedPart) (string, error) {
	if p.URL != "" {
		return download{cache: s.Cache, url: p.URL, sha256: p.SHA256, say: s.Say}.run(ctx)
	}
	path := p.at(s.List.dir)
	if p.SHA256 == "" {
		return path, nil
	}
	got, err := fileSHA256(ctx, path)
	if err == nil && got != p.SHA256 {
		err = fault.New(fmt.Sprintf("%s has the SHA-256 %s, and the list says %s", path, got, p.SHA256), "get the file again, or correct the list")
	}
	return path, err
}

func fileSHA256(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := newSum()
	_, err = io.Copy(sum, &interruptible{ctx, f})
	return sum.digest().Hex, errors.Wrapf(err, "cannot read %s", path)
}

func (s *stage) open(ctx context.Context, p *ListedPart) (io.ReadCloser, error) {
	if p.data != nil {
		return io.NopCloser(bytes.NewReader(p.data)), nil
	}
	path, err := s.local(ctx, p)
	if err != nil {
		return nil, err
	}
	if p.Member != "" {
		return openMember(path, p.Member)
	}
	return os.Open(path)
}

// openMember opens a file in a tar, which may be compressed.
func openMember(archive, member string) (io.ReadCloser, error) {
	unpacked, err := openUnpacked(archive)
	if err != nil {
		return nil, err
	}
	found, err := findMember(unpacked, member)
	if err != nil {
		unpacked.Close()
		return nil, errors.Wrapf(err, "%s", archive)
	}
	return &opened{found, unpacked.Close}, nil
}

func findMember(archive io.Reader, member string) (io.Reader, error) {
	for t := tar.NewReader(archive); ; {
		header, err := t.Next()
		switch {
		case err == io.EOF:
			return nil, fault.New(fmt.Sprintf("it has no member %s", member), "`tar -tf` lists its members")
		case err != nil:
			return nil, errors.Wrap(err, "not a tar archive")
		case path.Clean(header.Name) != path.Clean(member):
			continue
		case header.Typeflag != tar.TypeReg:
			return nil, errors.Errorf("its member %s is %s, not a file", member, kindOf(header.Typeflag))
		}
		return t, nil
	}
}

// Compressed files begin with these.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// openUnpacked opens a file, decompressing it if necessary. Otherwise it's the file itself, where a tar's reader can skip.
func openUnpacked(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	start := make([]byte, len(zstdMagic))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, errors.Wrapf(err, "cannot read %s", path)
	}
	var kind types.MediaType
	switch {
	case bytes.HasPrefix(start, gzipMagic):
		kind = types.OCILayer
	case bytes.HasPrefix(start, zstdMagic):
		kind = types.OCILayerZStd
	default:
		return f, nil
	}
	content, done, err := decompress(bufio.NewReaderSize(f, 64<<10), kind)
	if err != nil {
		f.Close()
		return nil, errors.Wrapf(err, "cannot decompress %s", path)
	}
	return &opened{content, func() error { done(); return f.Close() }}, nil
}

// opened reads a part of a file, or its uncompressed content.
type opened struct {
	io.Reader
	close func() error
}

func (o *opened) Close() error { return o.close() }
