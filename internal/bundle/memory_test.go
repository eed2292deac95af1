// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/pkg/errors"
)

const (
	maxMemory = 200 << 20 // bytes, as docs/bundle.md promises
	childTask = "SLIPWAY_BUNDLE_TEST"
	hugeFile  = 1 << 30
	hugeLayer = 2 << 30
	hugeImage = "registry.k8s.io/huge:1"
)

// TestMemory makes a bundle of three 1 GiB files, compressed side by side, and reads it and another with a 2 GiB image, in
// processes of their own.
func TestMemory(t *testing.T) {
	if task := os.Getenv(childTask); task != "" {
		runTask(t, task, os.Getenv(childTask+"_DIR"))
		checkMemory(t, task)
		return
	}
	dir := t.TempDir()
	l := listOf(ListedPart{})
	l.Parts = nil
	for _, file := range []string{"kubectl", "kubelet", "runc"} {
		l.Parts = append(l.Parts, ListedPart{Name: file, Type: Program, Version: "v1", Source: "the test", License: "Apache-2.0", File: file})
		sparseFile(t, filepath.Join(dir, file), hugeFile)
	}
	save(t, l, dir)
	writeHugeImage(t, filepath.Join(dir, "image.tar"))
	writeManyLayers(t, filepath.Join(dir, "layers.tar"))
	for _, task := range []string{"create", "read files", "read image", "read documents"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
		cmd.Env = append(os.Environ(), childTask+"="+task, childTask+"_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", task, err, out)
		}
		t.Logf("%s: %s", cmd.ProcessState.UserTime(), out)
	}
}

func runTask(t *testing.T, task, dir string) {
	t.Helper()
	if task == "create" {
		l, err := ReadList(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Create{List: l, Output: filepath.Join(dir, "files.tar"), Say: t.Logf}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if task == "read documents" {
		_, err := Open(filepath.Join(dir, "layers.tar"), Keys{})
		refused(t, err, "image "+hugeImage, "is missing")
		return
	}
	file := map[string]string{"read files": "files.tar", "read image": "image.tar"}[task]
	b := open(t, filepath.Join(dir, file), Keys{})
	read := int64(0)
	err := b.Each(t.Context(), func(_ Part, r io.Reader) error {
		n, err := io.Copy(io.Discard, r)
		read += n
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if task == "read files" {
		if read != 3*hugeFile {
			t.Errorf("%d bytes were read", read)
		}
		return
	}
	if err := b.WriteImages(t.Context(), []string{hugeImage}, io.Discard); err != nil {
		t.Fatal(err)
	}
}

// checkMemory looks at the process's peak so far. The kernel's ru_maxrss would include the parent's, too.
func checkMemory(t *testing.T, task string) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var peak int64 // in KiB
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &peak)
	}
	t.Logf("%s takes %d MiB", task, peak>>10)
	if peak == 0 || peak<<10 > maxMemory {
		t.Errorf("that is more than %d MiB", maxMemory>>20)
	}
}

func sparseFile(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// zeros is content that takes no space in a sparse file.
func zeros(size int64) io.ReadCloser { return io.NopCloser(io.LimitReader(zeroReader{}, size)) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// writeHugeImage makes a bundle with an image whose layer isn't compressed.
func writeHugeImage(t *testing.T, path string) {
	t.Helper()
	sum := sha256.New()
	if _, err := io.Copy(sum, zeros(hugeLayer)); err != nil {
		t.Fatal(err)
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	config, configDescriptor, err := encode(v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{digest}}}, types.OCIConfigJSON)
	if err != nil {
		t.Fatal(err)
	}
	manifest, descriptor, err := encode(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: configDescriptor,
		Layers: []v1.Descriptor{{MediaType: types.OCIUncompressedLayer, Digest: digest, Size: hugeLayer}},
	}, types.OCIManifestSchema1)
	if err != nil {
		t.Fatal(err)
	}
	part := Part{Name: hugeImage, Type: Image, Version: "1", Source: "the test", License: "Apache-2.0", Digest: descriptor.Digest, Size: hugeLayer, ConfigDigest: &configDescriptor.Digest}
	descriptor.Annotations = map[string]string{annotationImage: hugeImage}
	i, err := newImage(part, descriptor, manifest, func(v1.Descriptor) ([]byte, error) { return config, nil })
	if err != nil {
		t.Fatal(err)
	}
	c, err := listOf(ListedPart{}).contents([]staged{{part: part, image: i}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := &sparse{f: f}
	if err := c.write(out, func(*blob) (io.ReadCloser, error) { return zeros(hugeLayer), nil }); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(out.size); err != nil {
		t.Fatal(err)
	}
}

// TestMoreThan8GiB: a blob whose size doesn't fit an old tar header.
func TestMoreThan8GiB(t *testing.T) {
	const size = 9 << 30
	descriptor := v1.Descriptor{MediaType: partType, Digest: digestOf([]byte("x")), Size: size, Annotations: map[string]string{annotationTitle: "program/kubelet.zst"}}
	part := Part{Name: "kubelet", Type: Program, Version: "1", Source: "the test", License: "Apache-2.0", Digest: digestOf(nil), Size: size}
	c, err := listOf(ListedPart{}).contents([]staged{{part: part, blob: descriptor}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "b.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	full := errors.New("the data is a hole")
	if err := c.write(f, func(*blob) (io.ReadCloser, error) { return &failing{full}, nil }); !errors.Is(err, full) {
		t.Fatal(err)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		t.Fatal(err)
	}
	for cut, complete := range map[int64]bool{0: true, blockSize: false, size / 2: false} {
		if err := f.Truncate(at + size + 2*blockSize - cut); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path, Keys{})
		if (err == nil) != complete {
			t.Errorf("with %d bytes less: %v", cut, err)
		}
		if err == nil {
			b.Close()
		}
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }
func (f *failing) Close() error             { return nil }

// writeManyLayers makes a bundle whose documents are as large as allowed: two images of tens of thousands of layers, all missing.
func writeManyLayers(t *testing.T, path string) {
	t.Helper()
	const count = 26_000
	var parts []staged
	for _, name := range []string{hugeImage, "registry.k8s.io/vast:1"} {
		config := v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}}
		manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
		for n := range count {
			digest := digestOf(fmt.Append(nil, name, n))
			config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest)
			manifest.Layers = append(manifest.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Digest: digest, Size: 1})
		}
		rawConfig, configDescriptor, err := encode(config, types.OCIConfigJSON)
		if err != nil {
			t.Fatal(err)
		}
		manifest.Config = configDescriptor
		rawManifest, descriptor, err := encode(manifest, types.OCIManifestSchema1)
		if err != nil {
			t.Fatal(err)
		}
		part := Part{Name: name, Type: Image, Version: "1", Source: "the test", License: "Apache-2.0", Digest: descriptor.Digest, Size: count, ConfigDigest: &configDescriptor.Digest}
		descriptor.Annotations = map[string]string{annotationImage: name}
		i, err := newImage(part, descriptor, rawManifest, func(v1.Descriptor) ([]byte, error) { return rawConfig, nil })
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, staged{part: part, image: i})
	}
	c, err := listOf(ListedPart{}).contents(parts)
	if err != nil {
		t.Fatal(err)
	}
	list := []entry{{tar.Header{Name: entryLayout}, []byte(layoutFile)}, {tar.Header{Name: entryIndex}, c.rawLayout}}
	for _, document := range c.documents() {
		list = append(list, entry{tar.Header{Name: blobEntry(digestOf(document))}, document})
	}
	for i := range list {
		list[i].Typeflag = tar.TypeReg
	}
	writeFile(t, filepath.Dir(path), filepath.Base(path), writeEntries(t, list))
}

// sparse writes a file with holes for zeros.
type sparse struct {
	f    *os.File
	size int64
}

var hole = make([]byte, 64<<10)

func (s *sparse) Write(p []byte) (int, error) {
	n := len(p)
	if n > len(hole) || !bytes.Equal(p, hole[:n]) {
		if _, err := s.f.WriteAt(p, s.size); err != nil {
			return 0, err
		}
	}
	s.size += int64(n)
	return n, nil
}
