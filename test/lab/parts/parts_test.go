// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestRequiredVersion(t *testing.T) {
	gomod := "require example.org/one v1.2.3\n\nrequire (\n\texample.org/two/v3 v3.6.8 // indirect\n\texample.org/two v2.0.0\n)\n" +
		"replace example.org/three => example.org/three v9.9.9\n"
	for module, want := range map[string]string{
		"example.org/one": "v1.2.3", "example.org/two": "v2.0.0", "example.org/two/v3": "v3.6.8", "example.org/three": "",
	} {
		got, err := requiredVersion(gomod, module)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("requiredVersion(%s) = %q, %v; want %q", module, got, err, want)
		}
	}
}

func TestLinkerFlags(t *testing.T) {
	versions := Versions{Kubernetes: "v1.37.2", Flannel: "v0.28.10"}
	if got := linkerFlags("etcd", versions); got != "-s -w" {
		t.Errorf("etcd: %q", got)
	}
	if got, want := linkerFlags(flannel, versions), "/version.Version=v0.28.10"; !strings.HasSuffix(got, want) {
		t.Errorf("flannel: %q, want the end %q", got, want)
	}
	got := linkerFlags(kubernetes, versions)
	for _, want := range []string{"gitVersion=v1.37.2 ", "gitMajor=1 ", "gitMinor=37 ", "gitTreeState=clean"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}

// The lab must build the programs that the modules pin as tools.
func TestProgramsAreTools(t *testing.T) {
	tools := map[string][]string{}
	for _, p := range programs {
		if !strings.HasPrefix(p.pkg, ".") {
			tools[p.component] = append(tools[p.component], p.pkg)
		}
	}
	dirs := map[string][]string{}
	for _, r := range releases {
		for component, want := range tools {
			dirs[r.dir(component)] = want
		}
	}
	for component, want := range dirs {
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = filepath.Join("..", "components", component)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var mod struct{ Tool []struct{ Path string } }
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range mod.Tool {
			got = append(got, tool.Path)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("component %s has the tools %q, the lab builds %q", component, got, want)
		}
	}
}

func TestStamp(t *testing.T) {
	if stamp("a", "x", "yz") == stamp("a", "xy", "z") {
		t.Error("inputs that differ in their borders have the same stamp")
	}
	if got := kindOf(stamp("program-kube-proxy", "x")); got != "program-kube-proxy" {
		t.Errorf("kind %q", got)
	}
}

func TestEnsure(t *testing.T) {
	s := store{dir: t.TempDir()}
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o644) }
	broken := errors.New("broken")
	if err := s.ensure("thing-1", func(dir string) error { return errors.Join(fill(dir), broken) }); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	if s.has("thing-1") {
		t.Fatal("a failed step left something")
	}
	if err := s.ensure("thing-1", fill); err != nil || !s.has("thing-1/file") {
		t.Fatalf("not made: %v", err)
	}
	if err := s.ensure("thing-1", func(string) error { return broken }); err != nil {
		t.Fatalf("made twice: %v", err)
	}
}

func TestSweep(t *testing.T) {
	s := store{dir: t.TempDir()}
	long := time.Now().Add(-100 * time.Hour)
	for name, old := range map[string]bool{
		"thing-current": true, "thing-old": true, "thing-recent": false, "other-old": true, unfinished + "1": false,
	} {
		if err := os.Mkdir(s.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if old {
			if err := os.Chtimes(s.path(name), long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.sweep(map[string]bool{"thing-current": true}, time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"thing-current": true, "thing-old": false, "thing-recent": true, "other-old": true, unfinished + "1": false,
	} {
		if s.has(name) != want {
			t.Errorf("%s: there is %v, want %v", name, !want, want)
		}
	}
}

func TestTreeHash(t *testing.T) {
	base := fstest.MapFS{"a/go.mod": {Data: []byte("one")}, "README": {Data: []byte("text")}}
	hash := func(tree fstest.MapFS) string {
		got, err := treeHash(tree, isGoSource)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same := fstest.MapFS{"a/go.mod": {Data: []byte("one")}, "README": {Data: []byte("other")}}
	changed := fstest.MapFS{"a/go.mod": {Data: []byte("two")}}
	moved := fstest.MapFS{"b/go.mod": {Data: []byte("one")}}
	if hash(base) != hash(same) || hash(base) == hash(changed) || hash(base) == hash(moved) {
		t.Error("the hash does not follow the files that matter")
	}
}

func TestWriteArchive(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	images := []image{
		{name: "example.org/a:1", files: []imageFile{{path: "usr/local/bin/a", source: source}, {path: "usr/bin/b", link: "a"}}},
		{name: "example.org/c:1", files: []imageFile{{path: "c", source: source}}, entrypoint: []string{"/c"}},
	}
	var first, second bytes.Buffer
	for _, w := range []io.Writer{&first, &second} {
		if err := writeArchive(w, images, "arm64"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same images gave different bytes")
	}
	checkArchive(t, readTar(t, first.Bytes()))
}

func checkArchive(t *testing.T, files map[string][]byte) {
	t.Helper()
	var manifests []manifest
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil || len(manifests) != 2 {
		t.Fatalf("manifest %s: %v", files["manifest.json"], err)
	}
	for _, m := range manifests {
		var config imageConfig
		if err := json.Unmarshal(files[m.Config], &config); err != nil {
			t.Fatal(err)
		}
		if config.Architecture != "arm64" {
			t.Errorf("%s is for %s", m.RepoTags, config.Architecture)
		}
		sum := sha256.Sum256(files[m.Layers[0]])
		if want := "sha256:" + hex.EncodeToString(sum[:]); len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != want {
			t.Errorf("%s: layers %q, want %s", m.RepoTags, config.RootFS.DiffIDs, want)
		}
	}
	layer := readTar(t, files[manifests[0].Layers[0]])
	if string(layer["usr/local/bin/a"]) != "#!" || string(layer["usr/bin/b"]) != "a" {
		t.Errorf("layer %q", layer)
	}
}

// readTar maps files' names to their contents, and links' names to their targets.
func readTar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeSymlink {
			content = []byte(header.Linkname)
		}
		files[header.Name] = content
	}
}
