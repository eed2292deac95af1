// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
	"github.com/pkg/errors"
)

// listOf is a list with one part, and gives it a version, a license and a source.
func listOf(p ListedPart) *List {
	p.Version, p.License, p.Source = "v1", "Apache-2.0", "the test"
	return &List{APIVersion: APIVersion, Kind: listKind, KubernetesVersion: "v1.37.2", OS: "linux", Architecture: "amd64", Parts: []ListedPart{p}}
}

// onlyFile returns the content of a bundle's only file.
func onlyFile(t *testing.T, path string) string {
	t.Helper()
	var got string
	err := open(t, path, Keys{}).Each(t.Context(), func(_ Part, r io.Reader) error {
		data, err := io.ReadAll(r)
		got = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstdOf(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(data, nil)
}

// TestMembers: a file is found in an archive, whatever its compression.
func TestMembers(t *testing.T) {
	archive := tarOf(t, map[string][]byte{"./bin/containerd": []byte("the program")})
	dir := t.TempDir()
	for name, data := range map[string][]byte{"a.tar": archive, "a.tar.gz": gzipped(t, archive), "a.tar.zst": zstdOf(t, archive)} {
		writeFile(t, dir, name, data)
		part := ListedPart{Name: "containerd", Type: Program, File: name, Member: "bin/containerd", SHA256: digestOf(data).Hex}
		if got := onlyFile(t, create(t, save(t, listOf(part), dir))); got != "the program" {
			t.Errorf("%s: %q", name, got)
		}
		part.Member = "bin/runc"
		refused(t, createFails(t, save(t, listOf(part), dir)), "program containerd", name, "bin/runc")
		part.SHA256 = strings.Repeat("0", 64)
		refused(t, createFails(t, save(t, listOf(part), dir)), "program containerd", "SHA-256")
	}
	writeFile(t, dir, "text", []byte("no archive, but as long as the header of one: "+strings.Repeat("x", 600)))
	refused(t, createFails(t, save(t, listOf(ListedPart{Name: "x", Type: Program, File: "text", Member: "x"}), dir)), "text | tar archive")
}

// createFails returns the error, and checks that nothing is left.
func createFails(t *testing.T, l *List) error {
	t.Helper()
	dir := t.TempDir()
	err := Create{List: l, Output: filepath.Join(dir, "b.tar"), Cache: t.TempDir(), Say: t.Logf}.Run(t.Context())
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	return err
}

// TestListFaults: all faults are reported at once, before anything is done.
func TestListFaults(t *testing.T) {
	dir := t.TempDir()
	good := ListedPart{Name: "kubelet", Type: Program, File: "bundle.yaml"}
	for name, tt := range map[string]struct {
		change func(*List)
		says   []string
	}{
		"two missing files": {func(l *List) {
			l.Parts = []ListedPart{l.Parts[0], l.Parts[0]}
			l.Parts[0].File, l.Parts[1].File, l.Parts[1].Name = "none-1", "none-2", "kubectl"
		}, []string{"none-1", "none-2", "program kubelet", "program kubectl"}},
		"URL without a hash":  {func(l *List) { l.Parts[0].File, l.Parts[0].URL = "", "https://dl.k8s.io/x" }, []string{"sha256"}},
		"URL with a password": {func(l *List) { l.Parts[0].File, l.Parts[0].URL = "", "https://u:p@dl.k8s.io/x" }, []string{"password"}},
		"URL of another kind": {func(l *List) { l.Parts[0].File, l.Parts[0].URL = "", "ftp://dl.k8s.io/x" }, []string{"https"}},
		"hash that is none":   {func(l *List) { l.Parts[0].SHA256 = "abc" }, []string{"abc"}},
		"two sources":         {func(l *List) { l.Parts[0].URL = "https://dl.k8s.io/x" }, []string{"file, url | image"}},
		"no source":           {func(l *List) { l.Parts[0].File = "" }, []string{"file, url | image"}},
		"image without a digest": {func(l *List) {
			l.Parts[0] = ListedPart{Name: "registry.k8s.io/a:1", Type: Image, Image: "registry.k8s.io/a:1"}
		}, []string{"digest"}},
		"file from an image": {func(l *List) {
			l.Parts[0].File, l.Parts[0].Image = "", "registry.k8s.io/a@sha256:"+strings.Repeat("a", 64)
		}, []string{"type image"}},
		"image without registry": {func(l *List) { l.Parts[0].Type, l.Parts[0].Name = Image, "pause:1" }, []string{"pause:1", "full reference"}},
		"image without a tag":    {func(l *List) { l.Parts[0].Type, l.Parts[0].Name = Image, "registry.k8s.io/pause" }, []string{"full reference"}},
		"name with a directory":  {func(l *List) { l.Parts[0].Name = "bin/kubelet" }, []string{"bin/kubelet"}},
		"unknown type":           {func(l *List) { l.Parts[0].Type = "binary" }, []string{"binary"}},
		"twice":                  {func(l *List) { l.Parts = append(l.Parts, l.Parts[0]) }, []string{"twice"}},
		"no parts":               {func(l *List) { l.Parts = nil }, []string{"no parts"}},
		"no version, no license": {func(l *List) { l.Parts[0].Version, l.Parts[0].License = "", "" }, []string{"version | missing", "license | missing"}},
		"no words on the source": {func(l *List) { l.Parts[0].Source = "" }, []string{"source | missing"}},
		"other kind":             {func(l *List) { l.Kind = "List" }, []string{"BundleParts"}},
		"no Kubernetes version":  {func(l *List) { l.KubernetesVersion = "1.37" }, []string{"kubernetesVersion"}},
		"no architecture":        {func(l *List) { l.Architecture = "" }, []string{"platform"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := listOf(good)
			tt.change(l)
			l.dir = dir
			writeFile(t, dir, ListName, nil)
			refused(t, errors.New(strings.Join(l.faults(), "\n")), tt.says...)
		})
	}
	for _, text := range []string{"apiVersion: slipway.bundle/v1\nplatform: x\n", "{", "kind: a\nkind: b\n"} {
		writeFile(t, dir, ListName, []byte(text))
		_, err := ReadList(dir)
		refused(t, err, ListName)
	}
	_, err := ReadList(t.TempDir())
	refused(t, err, ListName)
}

// TestImageSources: an image comes from an image layout as a directory or a tar, alone or beside others, from an index of many
// platforms with attestations, and from a registry. It keeps its digest.
func TestImageSources(t *testing.T) {
	ours := testImage(t, "amd64", 1, 2000, 3000)
	want, err := ours.Digest()
	if err != nil {
		t.Fatal(err)
	}
	many := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: testImage(t, "arm64", 2, 100), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: ours, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: testImage(t, "unknown", 3, 100), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}})
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ref, err := name.NewTag(host + "/kube-proxy:v1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, many); err != nil {
		t.Fatal(err)
	}
	pushed, err := many.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	single := layoutOf(t, filepath.Join(dir, "single"), func(p layout.Path) error { return p.AppendImage(ours) })
	layoutOf(t, filepath.Join(dir, "many"), func(p layout.Path) error { return p.AppendIndex(many) })
	named := layoutOf(t, filepath.Join(dir, "named"), func(p layout.Path) error {
		if err := p.AppendImage(testImage(t, "amd64", 9, 10)); err != nil {
			return err
		}
		return p.AppendImage(ours, layout.WithAnnotations(map[string]string{annotationRef: "v1.37.2"}))
	})
	writeFile(t, dir, "single.tar", tarOfDir(t, single))
	writeFile(t, dir, "named.tar.gz", gzipped(t, tarOfDir(t, named)))
	for source, part := range map[string]ListedPart{
		"directory": {File: "single"}, "many platforms": {File: "many"}, "several images": {File: "named"},
		"archive": {File: "single.tar"}, "compressed archive": {File: "named.tar.gz"},
		"registry": {Image: host + "/kube-proxy:v1.37.2@" + pushed.String()},
	} {
		t.Run(source, func(t *testing.T) {
			part.Name, part.Type = proxyName, Image
			b := open(t, create(t, save(t, listOf(part), dir), func(c *Create) { c.Access.PlainHTTP = true }), Keys{})
			if err := b.Each(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if got := b.Index().Parts[0].Digest; got != want {
				t.Errorf("it has the digest %s, not %s", got, want)
			}
		})
	}
}

// TestLayersAreCached: a second run pulls no layer again, unless it's damaged in the cache.
func TestLayersAreCached(t *testing.T) {
	var mu sync.Mutex
	pulls := 0
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			pulls++
		}
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/a:1")
	if err != nil {
		t.Fatal(err)
	}
	image := testImage(t, "amd64", 1, 2000, 3000)
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	l := save(t, listOf(ListedPart{Name: proxyName, Type: Image, Image: ref.Name() + "@" + digest.String()}), t.TempDir())
	cache := t.TempDir()
	run := func(want int) {
		t.Helper()
		pulls = 0
		create(t, l, func(c *Create) { c.Access.PlainHTTP, c.Cache = true, cache })
		if pulls != want {
			t.Errorf("%d blobs were pulled, not %d", pulls, want)
		}
	}
	run(3) // two layers, and the configuration
	run(1)
	files, err := os.ReadDir(cache)
	if err != nil || len(files) != 2 {
		t.Fatalf("the cache has %v, %v", files, err)
	}
	writeFile(t, cache, files[0].Name(), []byte("damaged"))
	run(2)
	run(1)
}

// retyped is a layer under another name of its type.
type retyped struct {
	v1.Layer
	kind types.MediaType
}

func (l retyped) MediaType() (types.MediaType, error) { return l.kind, nil }

// TestSharedLayer: images share a layer that one calls Docker's and the other OCI's. It's in the bundle once, and each manifest
// keeps its own name.
func TestSharedLayer(t *testing.T) {
	layers, err := testImage(t, "amd64", 1, 2000).Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names := []string{"docker", "oci"}
	kinds := []types.MediaType{types.DockerLayer, types.OCILayer}
	l := listOf(ListedPart{})
	l.Parts = nil
	for i, kind := range kinds {
		image, err := mutate.AppendLayers(testImage(t, "amd64", 2), retyped{layers[0], kind})
		if err != nil {
			t.Fatal(err)
		}
		layoutOf(t, filepath.Join(dir, names[i]), func(p layout.Path) error { return p.AppendImage(image) })
		l.Parts = append(l.Parts, listOf(ListedPart{Name: "registry.k8s.io/" + names[i] + ":1", Type: Image, File: names[i]}).Parts[0])
	}
	path := create(t, save(t, l, dir))
	b := open(t, path, Keys{})
	if err := b.Each(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for i, image := range b.images {
		if got := image.manifest.Layers[0].MediaType; got != kinds[i] {
			t.Errorf("%s has a layer of the type %s, not %s", image.part, got, kinds[i])
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, e := range readEntries(t, data) {
		if e.Name == blobEntry(digest) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the layer is there %d times", count)
	}
	b.images[1].manifest.Layers[0].MediaType = types.OCIUncompressedLayer
	refused(t, b.checkBlobs(), b.images[1].part.Name)
}

func layoutOf(t *testing.T, dir string, fill func(layout.Path) error) string {
	t.Helper()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(p); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tarOfDir(t *testing.T, dir string) []byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		local, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[local], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, files)
}

// TestWrongImages are refused when the bundle is made.
func TestWrongImages(t *testing.T) {
	dir := t.TempDir()
	tag, err := name.NewTag(proxyName)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "arm.tar"), tag, testImage(t, "arm64", 1, 100)); err != nil {
		t.Fatal(err)
	}
	layoutOf(t, filepath.Join(dir, "two"), func(p layout.Path) error {
		if err := p.AppendImage(testImage(t, "amd64", 9, 10)); err != nil {
			return err
		}
		return p.AppendImage(testImage(t, "amd64", 8, 10))
	})
	damagedLayout := layoutOf(t, filepath.Join(dir, "damaged"), func(p layout.Path) error { return p.AppendImage(testImage(t, "amd64", 9, 5000)) })
	largest := ""
	_ = filepath.WalkDir(filepath.Join(damagedLayout, "blobs"), func(path string, d os.DirEntry, _ error) error {
		if info, err := d.Info(); err == nil && !d.IsDir() && info.Size() > 4000 {
			largest = path
		}
		return nil
	})
	data, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	data[2000] ^= 1
	if err := os.WriteFile(largest, data, 0o644); err != nil {
		t.Fatal(err)
	}
	lie := `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["` + digestOf([]byte("another")).String() + `"]}}`
	writeFile(t, dir, "lie.tar", tarOf(t, map[string][]byte{
		"manifest.json": []byte(`[{"Config":"config.json","RepoTags":["` + proxyName + `"],"Layers":["layer.tar"]}]`), "config.json": []byte(lie),
		"layer.tar": tarOf(t, map[string][]byte{"file": []byte("x")}),
	}))
	writeFile(t, dir, "text", bytes.Repeat([]byte("text "), 300))
	writeFile(t, dir, "other.tar", tarOf(t, map[string][]byte{"README": []byte("x")}))
	for file, says := range map[string]string{
		"arm.tar": "linux/arm64", "lie.tar": "configuration | layers", "two": "2 images", "damaged": "damaged", "text": "text | tar", "other.tar": "docker-archive | image layout",
	} {
		part := ListedPart{Name: proxyName, Type: Image, File: file}
		refused(t, createFails(t, save(t, listOf(part), dir)), "image "+proxyName, says)
	}
}

// TestKilledCreate: a killed run's leftovers beside the bundle are gone after the next run, even if that's canceled.
func TestKilledCreate(t *testing.T) {
	l := testList(t)
	dir := t.TempDir()
	output := filepath.Join(dir, "b.tar")
	left := stagingOf(output)
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, left, "blob-1", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Create{List: l, Output: output, Say: t.Logf}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled run ends with %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("%v is left", entries)
	}
	if err := (Create{List: l, Output: output, Say: t.Logf}).Run(t.Context()); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("there are %v", entries)
	}
}

// TestCreateTwice: a second run for the same file is refused, and the first one doesn't notice.
func TestCreateTwice(t *testing.T) {
	l := testList(t)
	output := filepath.Join(t.TempDir(), "b.tar")
	second := sync.OnceValue(func() error { return Create{List: l, Output: output, Say: t.Logf}.Run(t.Context()) })
	first := Create{List: l, Output: output, Say: func(string, ...any) { _ = second() }}
	if err := first.Run(t.Context()); err != nil {
		t.Error(err)
	}
	refused(t, second(), "another run", output)
	if err := open(t, output, Keys{}).Each(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestInterruptedAtTheEnd: a run that's interrupted once all parts are ready leaves nothing, as one interrupted before.
func TestInterruptedAtTheEnd(t *testing.T) {
	l := testList(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var ready atomic.Int32
	say := func(string, ...any) {
		if int(ready.Add(1)) == len(l.Parts) {
			cancel()
		}
	}
	if err := (Create{List: l, Output: filepath.Join(dir, "b.tar"), Say: say}).Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
