// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzRead: whatever a file holds, reading it ends without a panic and without more content than the index says, and an accepted
// bundle's images can be written.
func FuzzRead(f *testing.F) {
	whole := smallest(f)
	f.Add(whole)
	for _, at := range []int{0, 512, 1000, 1600, len(whole) / 2, len(whole) - 1024} {
		f.Add(whole[:at])
		changed := bytes.Clone(whole)
		changed[at] ^= 1
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := read(bytes.NewReader(data), int64(len(data)), Keys{})
		if err != nil {
			return
		}
		err = b.Each(t.Context(), func(p Part, r io.Reader) error {
			n, err := io.Copy(io.Discard, r)
			if err == nil && n != p.Size || n > p.Size {
				t.Errorf("%s has %d bytes, not %d", p, n, p.Size)
			}
			return err
		})
		if err != nil {
			return
		}
		var names []string
		for _, p := range b.index.images() {
			names = append(names, p.Name)
		}
		if err := b.WriteImages(t.Context(), names, io.Discard); err != nil {
			t.Errorf("the images of a good bundle cannot be written: %v", err)
		}
	})
}

// FuzzIndex: an index with right digests around it, whatever it says, is refused or has only names that lead nowhere.
func FuzzIndex(f *testing.F) {
	whole := smallest(f)
	good, err := read(bytes.NewReader(whole), int64(len(whole)), Keys{})
	if err != nil {
		f.Fatal(err)
	}
	list := readEntries(f, whole)
	f.Add(good.rawIndex)
	f.Add(bytes.ReplaceAll(good.rawIndex, []byte("kubelet.service"), []byte("../kubelet")))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, index []byte) {
		c := good.contents
		c.rawIndex, c.manifest.Config = index, describe(index, indexType)
		c.encodeAround(t)
		entries := slices.Clone(list)
		entries[1].data = c.rawLayout
		for i, document := range [][]byte{c.rawManifest, index} {
			entries[2+i].Name, entries[2+i].data = blobEntry(digestOf(document)), document
		}
		data := writeEntries(t, entries)
		b, err := read(bytes.NewReader(data), int64(len(data)), Keys{})
		if err != nil {
			return
		}
		for _, p := range b.index.files() {
			if !filepath.IsLocal(p.Name) || filepath.Base(p.Name) != p.Name || p.Size < 0 {
				t.Errorf("%q is accepted", p.Name)
			}
		}
	})
}

// smallest is a bundle of one file and one image, a few kilobytes.
func smallest(t testing.TB) []byte {
	l := testList(t)
	var parts []ListedPart
	for _, p := range l.Parts {
		if p.Name == "kubelet.service" || p.Name == "registry.k8s.io/pause:3.10.2" {
			parts = append(parts, p)
		}
	}
	l.Parts = parts
	c := Create{List: l, Output: t.TempDir() + "/b.tar", Say: func(string, ...any) {}}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.Output)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
