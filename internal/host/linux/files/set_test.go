// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

type putFunc = func(path string, content io.Reader) error

// filled puts contents, given in pairs of path and content.
func filled(pairs ...string) func(putFunc) error {
	return func(put putFunc) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := put(pairs[i], strings.NewReader(pairs[i+1])); err != nil {
				return err
			}
		}
		return nil
	}
}

// twoDirs has a user's file in each of two directories.
func twoDirs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bin", "lib"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		fixture.PutMode(t, filepath.Join(dir, name, "old"), "the user's", 0o644)
	}
	return dir
}

func TestWriteSet(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 100_000)
	for _, mask := range []int{0, 0o277} {
		t.Run(fmt.Sprintf("umask %03o", mask), func(t *testing.T) {
			dir := twoDirs(t)
			run, old, empty := dir+"/bin/run", dir+"/lib/old", dir+"/lib/empty"
			files := []host.SetFile{fixture.Member(run, large, 0o755), fixture.Member(old, "new", 0o600), fixture.Member(empty, "", 0o444)}
			setUmask(t, mask)
			r := onlyFiles()
			for range 2 { // the second time over its own files
				if err := r.WriteSet(files, filled(empty, "", run, large, old, "new")); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range files {
				if has, err := r.HasFile(f); !has || err != nil {
					t.Errorf("%s: HasFile %v, error %v", f.Path, has, err)
				}
				if _, mode := ownerAndMode(t, f.Path); mode != f.Mode {
					t.Errorf("%s has mode %v, want %v", f.Path, mode, f.Mode)
				}
			}
			got := append(fixture.Entries(t, dir+"/bin"), fixture.Entries(t, dir+"/lib")...)
			if diff := cmp.Diff([]string{"old", "run", "empty", "old"}, got); diff != "" {
				t.Errorf("directories (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteSetBelowRoot(t *testing.T) {
	root := twoDirs(t)
	r := onlyFilesAt(root)
	f := fixture.Member("/bin/run", "x", 0o755)
	if err := r.WriteSet([]host.SetFile{f}, filled("/bin/run", "x")); err != nil {
		t.Fatal(err)
	}
	if has, err := r.HasFile(f); !has || err != nil {
		t.Errorf("HasFile %v, error %v", has, err)
	}
	if got, err := os.ReadFile(root + "/bin/run"); string(got) != "x" {
		t.Errorf("read %q, error %v", got, err)
	}
}

// failing are fills that go wrong after staging the first file, with the end of the error.
func failing(a, b string) map[string]struct {
	fill func(putFunc) error
	want []string
} {
	type failure = struct {
		fill func(putFunc) error
		want []string
	}
	notIt := []string{b, fmt.Sprintf("SHA-256 %x", sha256.Sum256([]byte("bbb")))}
	return map[string]failure{
		"the archive ends": {func(put putFunc) error {
			return errors.Join(filled(a, "aaa")(put), errors.New("the archive ends"))
		}, []string{"archive ends"}},
		"the content cannot be read": {func(put putFunc) error {
			return errors.Join(filled(a, "aaa")(put), put(b, io.MultiReader(strings.NewReader("b"), broken{})))
		}, []string{b + ": no more"}},
		"longer":         {filled(a, "aaa", b, "bbbb"), notIt},
		"shorter":        {filled(a, "aaa", b, "bb"), notIt},
		"other":          {filled(a, "aaa", b, "bbc"), notIt},
		"never put":      {filled(a, "aaa"), []string{b, "missing"}},
		"unknown":        {filled(a, "aaa", b+"x", "bbb"), []string{b + "x", "set"}},
		"twice":          {filled(a, "aaa", a, "aaa", b, "bbb"), []string{a, "already"}},
		"a lost failure": {func(put putFunc) error { _ = put(b, broken{}); return put(a, strings.NewReader("aaa")) }, []string{b, "missing"}},
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("no more") }

// All files or none: a failure leaves both directories as they were.
func TestWriteSetFails(t *testing.T) {
	for name := range failing("", "") {
		t.Run(name, func(t *testing.T) {
			dir := twoDirs(t)
			a, b := dir+"/bin/a", dir+"/lib/old"
			c := failing(a, b)[name]
			files := []host.SetFile{fixture.Member(a, "aaa", 0o755), fixture.Member(b, "bbb", 0o755)}
			list, record := fixture.Records()
			err := plan.NewRecorder(onlyFiles(), record).WriteSet(files, c.fill)
			fact.Error(t, err, c.want...)
			if len(*list) > 0 {
				t.Errorf("recorded %v", *list)
			}
			checkUntouched(t, dir)
		})
	}
}

func checkUntouched(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"bin", "lib"} {
		if diff := cmp.Diff([]string{"old"}, fixture.Entries(t, filepath.Join(dir, name))); diff != "" {
			t.Errorf("directory %s (-want +got):\n%s", name, diff)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name, "old")); string(got) != "the user's" {
			t.Errorf("%s/old is %q, error %v", name, got, err)
		}
	}
}

func TestWriteSetWithoutDirectory(t *testing.T) {
	dir := twoDirs(t)
	files := []host.SetFile{fixture.Member(dir+"/bin/a", "a", 0o755), fixture.Member(dir+"/none/b", "b", 0o755)}
	for label, h := range map[string]host.Host{"real": onlyFiles(), "plan": plan.NewOverlay(onlyFiles(), func(host.Action) {})} {
		err := h.WriteSet(files, filled(files[0].Path, "a", files[1].Path, "b"))
		if want := "write " + dir + "/none"; !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v", label, err)
		}
	}
	checkUntouched(t, dir)
}

// TestWriteSetRefuses: anything but a regular file is neither replaced nor followed, and no file of the set is placed.
func TestWriteSetRefuses(t *testing.T) {
	dir := t.TempDir()
	things := strange(t, dir)
	before := fixture.Entries(t, dir)
	for label, h := range map[string]host.Host{"real": onlyFiles(), "plan": plan.NewOverlay(onlyFiles(), func(host.Action) {})} {
		for name := range things {
			files := []host.SetFile{fixture.Member(dir+"/a", "a", 0o755), fixture.Member(filepath.Join(dir, name), "b", 0o755)}
			var kind *host.KindError
			if err := h.WriteSet(files, filled(files[0].Path, "a", files[1].Path, "b")); !errors.As(err, &kind) || kind.Path != files[1].Path {
				t.Errorf("%s, %s: error %v", label, name, err)
			}
			if has, err := h.HasFile(files[1]); has || !errors.As(err, &kind) {
				t.Errorf("%s, %s: HasFile %v, error %v", label, name, has, err)
			}
		}
	}
	if diff := cmp.Diff(before, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	if got, _ := os.ReadFile(dir + "/victim"); string(got) != "precious" {
		t.Errorf("wrote through a symlink: %q", got)
	}
}

// A killed earlier run may have been writing files outside this set.
func TestWriteSetSweeps(t *testing.T) {
	dir := twoDirs(t)
	for _, name := range []string{"bin/.a.slipway-AAAAAAAA", "bin/.other.slipway-BBBBBBBB", "lib/.old.slipway-CCCCCCCC"} {
		fixture.PutMode(t, filepath.Join(dir, name), "half", 0o600)
	}
	fixture.PutMode(t, dir+"/bin/.mine.slipway", "the user's", 0o600)
	if err := onlyFiles().WriteSet([]host.SetFile{fixture.Member(dir+"/bin/a", "a", 0o755)}, filled(dir+"/bin/a", "a")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{".mine.slipway", "a", "old"}, fixture.Entries(t, dir+"/bin")); diff != "" {
		t.Errorf("the set's directory (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{".old.slipway-CCCCCCCC", "old"}, fixture.Entries(t, dir+"/lib")); diff != "" {
		t.Errorf("another directory (-want +got):\n%s", diff)
	}
}

// A new file is noted as Slipway's; a user's file stays the user's.
func TestWriteSetMarks(t *testing.T) {
	dir := twoDirs(t)
	r := onlyFiles()
	ours, theirs := dir+"/bin/a", dir+"/bin/old"
	if err := r.WriteSet([]host.SetFile{fixture.Member(ours, "a", 0o755), fixture.Member(theirs, "b", 0o755)}, filled(ours, "a", theirs, "b")); err != nil {
		t.Fatal(err)
	}
	if r.CreatedBySlipway(theirs) || r.Unchanged(theirs) {
		t.Error("a file that was the user's counts as Slipway's")
	}
	if !r.CreatedBySlipway(ours) {
		t.Skip("this file system, or this user, keeps no notes")
	}
	if err := r.WriteSet([]host.SetFile{fixture.Member(ours, "newer", 0o755)}, filled(ours, "newer")); err != nil {
		t.Fatal(err)
	}
	if !r.CreatedBySlipway(ours) || !r.Unchanged(ours) {
		t.Errorf("a new version: Made %v, Unchanged %v", r.CreatedBySlipway(ours), r.Unchanged(ours))
	}
}
