// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/schema"
)

// TestWhatGoesInComesOut: every file arrives unchanged, in the index's order.
func TestWhatGoesInComesOut(t *testing.T) {
	l := testList(t)
	b := open(t, create(t, l), Keys{})
	var visited []Part
	err := b.Each(t.Context(), func(p Part, r io.Reader) error {
		got, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		n := slices.IndexFunc(l.Parts, func(row ListedPart) bool { return row.Name == p.Name && row.Type == p.Type })
		want, err := os.ReadFile(l.Parts[n].at(l.dir))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(want)
		if !bytes.Equal(got, want) || p.Size != int64(len(want)) || p.Digest.Hex != hex.EncodeToString(sum[:]) {
			t.Errorf("%s is another file", p)
		}
		visited = append(visited, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x := b.Index()
	var names []string
	for _, p := range x.Parts {
		names = append(names, p.String())
	}
	want := []string{"program kubectl", "program kubelet", "cni-plugin bridge", "unit 10-kubeadm.conf", "unit kubelet.service",
		"setting ours.toml", "image " + proxyName, "image registry.k8s.io/pause:3.10.2"}
	if !slices.Equal(names, want) || len(visited) != len(x.files()) {
		t.Errorf("the index has %q, and %d files were visited", names, len(visited))
	}
	if err := b.Fits("linux", "amd64"); err != nil {
		t.Error(err)
	}
	if err := b.Fits("linux", "arm64"); err == nil || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("on another architecture: %v", err)
	}
}

// TestIndexHasItsSchema checks an index against docs/bundle-index.schema.json.
func TestIndexHasItsSchema(t *testing.T) {
	s, err := schema.BundleIndex()
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, create(t, testList(t)), Keys{})
	if err := s.Check(b.rawIndex); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(map[string]any){
		"unknown field": func(m map[string]any) { m["x"] = 1 },
		"path as name":  func(m map[string]any) { m["parts"].([]any)[0].(map[string]any)["name"] = "../kubelet" },
		"type":          func(m map[string]any) { m["parts"].([]any)[0].(map[string]any)["type"] = "key" },
		"image":         func(m map[string]any) { m["parts"].([]any)[0].(map[string]any)["type"] = "image" },
		"digest":        func(m map[string]any) { m["parts"].([]any)[0].(map[string]any)["digest"] = "sha256:1" },
		"version":       func(m map[string]any) { m["kubernetesVersion"] = "1.37" },
	} {
		var m map[string]any
		if err := json.Unmarshal(b.rawIndex, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if s.Check(data) == nil {
			t.Errorf("%s: the schema has nothing against it", name)
		}
	}
}

// TestSameInputSameBytes: a second run, even over another bundle, makes the same bytes.
func TestSameInputSameBytes(t *testing.T) {
	l := testList(t)
	first := create(t, l)
	second := create(t, l)
	third := create(t, l, func(c *Create) { c.Output = second })
	a, _ := os.ReadFile(first)
	for _, path := range []string{second, third} {
		if b, _ := os.ReadFile(path); !bytes.Equal(a, b) || len(a) == 0 {
			t.Errorf("%d and %d bytes differ", len(a), len(b))
		}
	}
}

// TestUnpacked: tar unpacks an image layout in which common tools find the images by name.
func TestUnpacked(t *testing.T) {
	data, err := os.ReadFile(create(t, testList(t)))
	if err != nil {
		t.Fatal(err)
	}
	checkLayout(t, data, 3)
}

// checkLayout unpacks a tar, and has go-containerregistry validate the images.
func checkLayout(t *testing.T, archive []byte, manifests int) {
	t.Helper()
	dir := t.TempDir()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, h.Name)
		_ = os.MkdirAll(filepath.Dir(to), 0o700)
		if err := copyTo(t.Context(), to, r); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != manifests {
		t.Errorf("there are %d manifests", len(m.Manifests))
	}
	for _, d := range m.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if d.ArtifactType != "" {
			continue
		}
		if err := validate.Image(image, validate.Fast); err != nil || d.Annotations[annotationImage] == "" {
			t.Errorf("%v: %v", d.Annotations, err)
		}
	}
}

func TestWriteImages(t *testing.T) {
	b := open(t, create(t, testList(t)), Keys{})
	var out bytes.Buffer
	if err := b.WriteImages(t.Context(), []string{proxyName}, &out); err != nil {
		t.Fatal(err)
	}
	checkLayout(t, out.Bytes(), 1)
	if strings.Contains(out.String(), "pause") {
		t.Error("it has an image that was not asked for")
	}
	if err := b.WriteImages(t.Context(), []string{"registry.k8s.io/etcd:1"}, io.Discard); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/etcd:1") {
		t.Errorf("an unknown image: %v", err)
	}
}

// TestVisitMayStop: content visit doesn't read is verified all the same. Visit's error ends the run, as does a canceled context.
func TestVisitMayStop(t *testing.T) {
	b := open(t, create(t, testList(t)), Keys{})
	count := 0
	if err := b.Each(t.Context(), func(Part, io.Reader) error { count++; return nil }); err != nil || count != 6 {
		t.Errorf("%d visits, %v", count, err)
	}
	full := errors.New("disk full")
	if err := b.Each(t.Context(), func(Part, io.Reader) error { return full }); !errors.Is(err, full) {
		t.Errorf("the error of visit became %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Each(ctx, func(_ Part, r io.Reader) error {
		cancel()
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled run ends with %v", err)
	}
}
