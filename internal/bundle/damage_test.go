// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/fact"
)

type entry struct {
	tar.Header
	data []byte
}

func readEntries(t testing.TB, archive []byte) []entry {
	t.Helper()
	var list []entry
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{*h, data})
	}
}

func writeEntries(t testing.TB, list []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		e.Format = tar.FormatUnknown
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.data))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// verifyAll reads a bundle as every reader does.
func verifyAll(t testing.TB, archive []byte, keys Keys) error {
	t.Helper()
	b, err := read(bytes.NewReader(archive), int64(len(archive)), keys)
	if err != nil {
		return err
	}
	return b.Each(t.Context(), nil)
}

// refused checks that an error has these facts.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("it is accepted")
		return
	}
	for _, word := range words {
		fact.In(t, err.Error(), fact.Of(word)...)
	}
}

func readBundle(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(create(t, testList(t)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestFlippedBytes: a changed byte in any entry is noticed, and the part named.
func TestFlippedBytes(t *testing.T) {
	key, keys := newKey(t)
	whole, err := os.ReadFile(create(t, testList(t), func(c *Create) { c.Sign = key }))
	if err != nil {
		t.Fatal(err)
	}
	b, err := read(bytes.NewReader(whole), int64(len(whole)), keys)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, blob := range b.layers() {
		name, _, _ := strings.Cut(blob.what(), " (")
		names[blobEntry(blob.Digest)] = name
	}
	for i, e := range readEntries(t, whole) {
		for _, at := range []int{0, len(e.data) / 2, len(e.data) - 1} {
			list := readEntries(t, whole)
			list[i].data[at] ^= 0x20
			refused(t, verifyAll(t, writeEntries(t, list), keys), names[e.Name])
		}
	}
	if len(names) != 9 {
		t.Errorf("there are %d blobs of parts", len(names))
	}
}

// TestTruncated: a bundle cut off anywhere is refused: in each header, and at the beginning, middle and end of each entry's data.
func TestTruncated(t *testing.T) {
	whole := readBundle(t)
	h := newEntries(bytes.NewReader(whole), int64(len(whole)))
	var cuts []int64
	for {
		header, err := h.peek()
		if err != nil {
			t.Fatal(err)
		}
		if header == nil {
			break
		}
		for _, at := range []int64{-512, -100, 0, 1, header.Size / 2, header.Size - 1, header.Size} {
			cuts = append(cuts, h.offset+at)
		}
		h.ahead = nil
	}
	cuts = append(cuts, int64(len(whole))-1024, int64(len(whole))-512, int64(len(whole))-1)
	for _, at := range cuts {
		err := verifyAll(t, whole[:at], Keys{})
		if err == nil {
			t.Errorf("%d of %d bytes are accepted", at, len(whole))
		}
	}
	if len(cuts) < 100 {
		t.Errorf("%d cuts only", len(cuts))
	}
}

// TestWrongEntries: a tar is refused unless it's exactly as Slipway writes it.
func TestWrongEntries(t *testing.T) {
	whole := readBundle(t)
	last := len(readEntries(t, whole)) - 1
	const kubectl = 8 // the first blob of a part
	link := func(kind byte, name, to string) entry {
		return entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}}
	}
	file := func(name, data string) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data: []byte(data)}
	}
	for name, tt := range map[string]struct {
		change func([]entry) []entry
		says   string
	}{
		"path that escapes":       {func(l []entry) []entry { return append(l, file("../../etc/passwd", "x")) }, `"../../etc/passwd" | leads out`},
		"path that escapes first": {func(l []entry) []entry { return slices.Insert(l, 0, file("blobs/../../x", "x")) }, "leads out"},
		"absolute path":           {func(l []entry) []entry { return append(l, file("/etc/passwd", "x")) }, `"/etc/passwd" | leads out`},
		"symlink":                 {func(l []entry) []entry { return append(l, link(tar.TypeSymlink, "blobs/x", "/etc/passwd")) }, "symbolic link"},
		"symlink for a part":      {func(l []entry) []entry { l[kubectl] = link(tar.TypeSymlink, l[kubectl].Name, "/etc/passwd"); return l }, "program kubectl"},
		"hard link for a part":    {func(l []entry) []entry { l[last] = link(tar.TypeLink, l[last].Name, l[kubectl].Name); return l }, "hard link"},
		"device":                  {func(l []entry) []entry { l[kubectl] = link(tar.TypeChar, l[kubectl].Name, ""); return l }, "device"},
		"pipe":                    {func(l []entry) []entry { return append(l, link(tar.TypeFifo, "p", "")) }, "pipe"},
		"directory":               {func(l []entry) []entry { return append(l, link(tar.TypeDir, "blobs/", "")) }, "directory"},
		"twice":                   {func(l []entry) []entry { return append(l, l[kubectl]) }, "twice"},
		"index twice":             {func(l []entry) []entry { return append(l, l[1]) }, `"index.json" twice`},
		"unknown entry":           {func(l []entry) []entry { return append(l, file("README", "x")) }, `"README"`},
		"unknown blob":            {func(l []entry) []entry { return append(l, file(blobEntry(digestOf([]byte("x"))), "x")) }, "no part"},
		"part missing":            {func(l []entry) []entry { return slices.Delete(l, kubectl, kubectl+1) }, "program kubectl | missing"},
		"last part missing":       {func(l []entry) []entry { return l[:last] }, "image registry.k8s.io/pause:3.10.2"},
		"other order":             {func(l []entry) []entry { l[last], l[last-1] = l[last-1], l[last]; return l }, "missing"},
		"part longer":             {func(l []entry) []entry { l[kubectl].data = append(l[kubectl].data, 0); return l }, "program kubectl"},
		"no layout":               {func(l []entry) []entry { return l[1:] }, "bundle"},
		"other layout":            {func(l []entry) []entry { l[0].data = []byte(`{"imageLayoutVersion":"2.0.0"}`); return l }, "bundle"},
		"no index":                {func(l []entry) []entry { return slices.Delete(l, 1, 2) }, "index.json | missing"},
		"huge index":              {func(l []entry) []entry { l[1].data = bytes.Repeat([]byte(" "), maxDocument+1); return l }, "index.json"},
		"huge signature": {func(l []entry) []entry {
			return slices.Insert(l, 2, file(entrySignature, strings.Repeat("x", maxSignature+1)))
		}, "signature"},
		"attributes": {func(l []entry) []entry {
			l[kubectl].PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y"}
			return l
		}, "SCHILY.xattr.user.x"},
		"nothing": {func([]entry) []entry { return nil }, "bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, verifyAll(t, writeEntries(t, tt.change(readEntries(t, whole))), Keys{}), tt.says)
		})
	}
	refused(t, verifyAll(t, append(bytes.Clone(whole), "more"...), Keys{}), "end")
	refused(t, verifyAll(t, append(bytes.Clone(whole), make([]byte, 2<<20)...), Keys{}), "end")
	refused(t, verifyAll(t, []byte("#!/bin/sh\necho no tar, and longer than a header of one is\n"), Keys{}), "bundle")
	if err := verifyAll(t, append(bytes.Clone(whole), make([]byte, 10240)...), Keys{}); err != nil {
		t.Errorf("padding, as other programs write it, is refused: %v", err)
	}
}

// forge makes the small bundle with documents that lie under right digests.
func forge(t *testing.T, lie func(parts []staged, c *contents) (files map[v1.Hash][]byte)) []byte {
	t.Helper()
	dir := t.TempDir()
	s := &stage{Create: Create{List: testList(t), Cache: t.TempDir(), Say: t.Logf}, dir: dir}
	parts, err := s.parts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files := lie(parts, nil)
	c, err := s.List.contents(parts)
	if err != nil {
		t.Fatal(err)
	}
	blobs := c.layers()
	lie(nil, c)
	list := []entry{{tar.Header{Name: entryLayout}, []byte(layoutFile)}, {tar.Header{Name: entryIndex}, c.rawLayout}}
	for _, document := range c.documents() {
		list = append(list, entry{tar.Header{Name: blobEntry(digestOf(document))}, document})
	}
	for _, b := range blobs {
		data, ok := files[b.Digest]
		if !ok {
			if data, err = os.ReadFile(s.path(b.Digest)); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, entry{tar.Header{Name: blobEntry(b.Digest)}, data})
	}
	for i := range list {
		list[i].Typeflag = tar.TypeReg
	}
	return writeEntries(t, list)
}

// rewrite encodes the documents again, from the inside out.
func (c *contents) rewrite(t *testing.T) {
	t.Helper()
	var err error
	if c.rawIndex, c.manifest.Config, err = encode(c.index, indexType); err != nil {
		t.Fatal(err)
	}
	c.encodeAround(t)
}

// encodeAround encodes the documents around the index again.
func (c *contents) encodeAround(t *testing.T) {
	t.Helper()
	c.layout.Manifests = slices.Clone(c.layout.Manifests)
	var err error
	annotations := c.layout.Manifests[0].Annotations
	if c.rawManifest, c.layout.Manifests[0], err = encode(c.manifest, c.layout.Manifests[0].MediaType); err != nil {
		t.Fatal(err)
	}
	c.layout.Manifests[0].ArtifactType, c.layout.Manifests[0].Annotations = artifactType, annotations
	if c.rawLayout, _, err = encode(c.layout, ""); err != nil {
		t.Fatal(err)
	}
}

const kubectlPart = 0 // in order

// TestLies: documents with right digests, and false statements.
func TestLies(t *testing.T) {
	part := func(change func(*staged)) func([]staged, *contents) map[v1.Hash][]byte {
		return func(parts []staged, _ *contents) map[v1.Hash][]byte {
			if parts != nil {
				change(&parts[kubectlPart])
			}
			return nil
		}
	}
	image := func(change func(*staged)) func([]staged, *contents) map[v1.Hash][]byte {
		return func(parts []staged, _ *contents) map[v1.Hash][]byte {
			if parts != nil {
				change(&parts[len(parts)-2])
			}
			return nil
		}
	}
	documents := func(change func(*contents)) func([]staged, *contents) map[v1.Hash][]byte {
		return func(_ []staged, c *contents) map[v1.Hash][]byte {
			if c != nil {
				change(c)
				c.rewrite(t)
			}
			return nil
		}
	}
	hash := digestOf([]byte("another"))
	for name, tt := range map[string]struct {
		lie  func([]staged, *contents) map[v1.Hash][]byte
		says []string
	}{
		"larger than it says":          {part(func(s *staged) { s.part.Size-- }), []string{"program kubectl", "larger"}},
		"smaller than it says":         {part(func(s *staged) { s.part.Size++ }), []string{"program kubectl", "smaller"}},
		"negative size":                {part(func(s *staged) { s.part.Size = -1 }), []string{"program kubectl", "size"}},
		"another digest":               {part(func(s *staged) { s.part.Digest = hash }), []string{"program kubectl", "damaged"}},
		"path as a name":               {part(func(s *staged) { s.part.Name = "../kubectl" }), []string{`"../kubectl"`}},
		"absolute path as a name":      {part(func(s *staged) { s.part.Name = "/etc/passwd" }), []string{`"/etc/passwd"`}},
		"hidden file as a name":        {part(func(s *staged) { s.part.Name = ".." }), []string{`".."`}},
		"unknown type":                 {part(func(s *staged) { s.part.Type = "key" }), []string{`"key"`}},
		"no license":                   {part(func(s *staged) { s.part.License = "" }), []string{"program kubectl", "version, source", "license"}},
		"other title":                  {part(func(s *staged) { s.blob.Annotations = nil }), []string{"program kubectl", "place"}},
		"file with a configuration":    {part(func(s *staged) { s.part.ConfigDigest = &hash }), []string{"program kubectl"}},
		"bomb that claims to be small": {bomb(t, 1000), []string{"program kubectl", "larger"}},
		"bomb that claims its size":    {bomb(t, 1<<40), []string{"program kubectl", "smaller"}},
		"image without configuration":  {image(func(s *staged) { s.part.ConfigDigest = nil }), []string{"image " + proxyName}},
		"another configuration":        {image(func(s *staged) { s.part.ConfigDigest = &hash }), []string{"image " + proxyName, "another configuration"}},
		"image of another size":        {image(func(s *staged) { s.part.Size++ }), []string{"image " + proxyName, "another size"}},
		"image larger than it says":    {image(func(s *staged) { s.part.Size = 1000 }), []string{"image " + proxyName, "larger"}},
		"another manifest":             {image(func(s *staged) { s.part.Digest = hash }), []string{"image " + proxyName}},
		"image without a name":         {image(func(s *staged) { s.image.descriptor.Annotations = nil }), []string{"image " + proxyName}},
		"other version of the format":  {documents(func(c *contents) { c.index.APIVersion = "slipway.bundle/v2" }), []string{"slipway.bundle/v2"}},
		"other architecture":           {documents(func(c *contents) { c.index.Architecture = "arm64" }), []string{"image " + proxyName, "linux/amd64", "linux/arm64"}},
		"no Kubernetes version":        {documents(func(c *contents) { c.index.KubernetesVersion = "" }), []string{"kubernetesVersion"}},
		"part twice":                   {documents(func(c *contents) { c.index.Parts[1] = c.index.Parts[0] }), []string{"program kubectl", "twice"}},
		"part without a blob":          {documents(func(c *contents) { c.manifest.Layers = c.manifest.Layers[1:] }), []string{"5 files", "6"}},
		"image without a manifest":     {documents(func(c *contents) { c.layout.Manifests = c.layout.Manifests[:2] }), []string{"1 images"}},
		"blobs exchanged":              {documents(func(c *contents) { l := c.manifest.Layers; l[0].Digest, l[1].Digest = l[1].Digest, l[0].Digest }), []string{"program kubectl"}},
		"manifest as a blob":           {documents(func(c *contents) { c.manifest.Layers[0].Digest = c.layout.Manifests[1].Digest }), []string{"program kubectl"}},
		"digest of another kind":       {documents(func(c *contents) { c.manifest.Layers[0].Digest.Algorithm = "sha512" }), nil},
	} {
		t.Run(name, func(t *testing.T) { refused(t, verifyAll(t, forge(t, tt.lie), Keys{}), tt.says...) })
	}
}

// bomb replaces kubectl with 64 MiB of compressed zeros; the index claims another size.
func bomb(t *testing.T, claimed int64) func([]staged, *contents) map[v1.Hash][]byte {
	content := make([]byte, 64<<20)
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	data := z.EncodeAll(content, nil)
	return func(parts []staged, _ *contents) map[v1.Hash][]byte {
		if parts == nil {
			return nil
		}
		p := &parts[kubectlPart]
		p.part.Digest, p.part.Size = digestOf(content), claimed
		p.blob.Digest, p.blob.Size = digestOf(data), int64(len(data))
		return map[v1.Hash][]byte{p.blob.Digest: data}
	}
}

// TestChangedWhileOpen: a file that changes after Open is noticed.
func TestChangedWhileOpen(t *testing.T) {
	path := create(t, testList(t))
	b := open(t, path, Keys{})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	garbage := make([]byte, 4096)
	_, _ = rand.Read(garbage)
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(garbage, info.Size()-8192); err != nil {
		t.Fatal(err)
	}
	refused(t, b.Each(t.Context(), nil), "damaged")
	refused(t, b.WriteImages(t.Context(), []string{proxyName, "registry.k8s.io/pause:3.10.2"}, io.Discard), "damaged")
	if err := f.Truncate(100_000); err != nil {
		t.Fatal(err)
	}
	refused(t, b.Each(t.Context(), nil), "")
}

// TestNoBundle: errors say if there's no file.
func TestNoBundle(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none"), Keys{})
	refused(t, err, "bundle", "none")
	_, err = Open(t.TempDir(), Keys{})
	refused(t, err, "file")
}
