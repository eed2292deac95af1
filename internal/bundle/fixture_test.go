// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

const proxyName = "registry.k8s.io/kube-proxy:v1.37.2"

// noise is content that hardly compresses, the same for the same seed.
func noise(seed uint64, size int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	data := make([]byte, size)
	_, _ = random.Read(data)
	return data
}

// testImage has a layer of each size.
func testImage(t testing.TB, architecture string, seed uint64, sizes ...int) v1.Image {
	t.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		content := tarOf(t, map[string][]byte{fmt.Sprintf("file-%d", i): noise(seed+uint64(i), size)})
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			t.Fatal(err)
		}
	}
	return mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

func tarOf(t testing.TB, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// testList has a small bundle's parts: files of each type, and two images.
func testList(t testing.TB) *List {
	t.Helper()
	dir := t.TempDir()
	row := func(kind Type, name, file string) ListedPart {
		return ListedPart{Name: name, Type: kind, Version: "v1.37.2", Source: "the test", License: "Apache-2.0", File: file}
	}
	l := &List{APIVersion: APIVersion, Kind: listKind, KubernetesVersion: "v1.37.2", OS: "linux", Architecture: "amd64", Parts: []ListedPart{
		row(Setting, "ours.toml", "ours.toml"), row(Program, "kubelet", "kubelet"), row(Program, "kubectl", "kubectl"),
		row(CNIPlugin, "bridge", "bridge"), row(Unit, "kubelet.service", "kubelet.service"), row(Unit, "10-kubeadm.conf", "empty"),
		row(Image, proxyName, "proxy.tar"), row(Image, "registry.k8s.io/pause:3.10.2", "pause.tar"),
	}}
	for name, data := range map[string][]byte{
		"kubelet": noise(1, 300_000), "kubectl": noise(2, 70_000), "bridge": bytes.Repeat([]byte("bridge"), 5000),
		"kubelet.service": []byte("[Service]\n"), "ours.toml": []byte("timeout: 10\n"), "empty": nil,
	} {
		writeFile(t, dir, name, data)
	}
	for file, image := range map[string]v1.Image{
		"proxy.tar": testImage(t, "amd64", 10, 50_000, 60_000), "pause.tar": testImage(t, "amd64", 20, 3000),
	} {
		tag, _ := name.NewTag("registry.k8s.io/" + file[:5] + ":1")
		if err := tarball.WriteToFile(filepath.Join(dir, file), tag, image); err != nil {
			t.Fatal(err)
		}
	}
	return save(t, l, dir)
}

// save writes a list into dir and reads it again, as a user's.
func save(t testing.TB, l *List, dir string) *List {
	t.Helper()
	data, err := yaml.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, ListName, data)
	read, err := ReadList(dir)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func writeFile(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, l *List, change ...func(*Create)) string {
	t.Helper()
	c := Create{List: l, Output: filepath.Join(t.TempDir(), "bundle.tar"), Cache: t.TempDir(), Say: t.Logf}
	for _, f := range change {
		f(&c)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c.Output
}

func open(t testing.TB, path string, keys Keys) *Bundle {
	t.Helper()
	b, err := Open(path, keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}
