// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fixture"
)

var own = host.Owner{UID: os.Getuid(), GID: os.Getgid()}

// other is another user, if the test may change owners.
func other() host.Owner {
	if os.Geteuid() != 0 {
		return own
	}
	return host.Owner{UID: 12345, GID: 23456}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
}

func second[T any](_ T, err error) error { return err }

func ownerAndMode(t *testing.T, path string) (host.Owner, fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	owner, _ := host.OwnerIn(info)
	return owner, info.Mode()
}

func TestGive(t *testing.T) {
	asRoot(t)
	path := filepath.Join(t.TempDir(), "sa.key")
	fixture.PutMode(t, path, "key", 0o604)
	for range 2 {
		if err := onlyFiles().SetOwner(path, other(), 0o640); err != nil {
			t.Fatal(err)
		}
		if owner, mode := ownerAndMode(t, path); owner != other() || mode != 0o640 {
			t.Errorf("owner %v, mode %v", owner, mode)
		}
	}
}

func TestGiveWhatIsRight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	fixture.PutMode(t, path, "x", 0o600)
	if err := os.Link(path, path+"2"); err != nil { // its owner is right, so nothing changes
		t.Fatal(err)
	}
	before, _ := os.Lstat(path)
	if err := onlyFiles().SetOwner(path, own, 0o600); err != nil {
		t.Error(err)
	}
	after, _ := os.Lstat(path)
	if diff := cmp.Diff(before.Sys().(*syscall.Stat_t).Ctim, after.Sys().(*syscall.Stat_t).Ctim); diff != "" {
		t.Error("the file was touched")
	}
}

// TestGiveRefuses everything that isn't certainly the intended file, in a plan as well.
func TestGiveRefuses(t *testing.T) {
	dir := t.TempDir()
	strange(t, dir)
	fixture.PutMode(t, filepath.Join(dir, "file"), "x", 0o600)
	if err := os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	record := func(a host.Action) { t.Errorf("recorded %v", a) }
	for name, h := range map[string]host.Host{"real": onlyFiles(), "overlay": plan.NewOverlay(onlyFiles(), record), "recorder": plan.NewRecorder(onlyFiles(), record)} {
		for _, kind := range []string{"link", "dangling", "fifo", "sock", "directory"} {
			var fault *host.KindError
			if err := h.SetOwner(filepath.Join(dir, kind), host.Owner{UID: 1, GID: 1}, 0o600); !errors.As(err, &fault) {
				t.Errorf("%s: %s: error %v", name, kind, err)
			}
		}
		if err := h.SetOwner(filepath.Join(dir, "none"), host.Owner{UID: 1, GID: 1}, 0o600); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a missing file: error %v", name, err)
		}
		err := h.SetOwner(filepath.Join(dir, "hard"), host.Owner{UID: 1, GID: 1}, 0o600)
		if err == nil || !strings.Contains(err.Error(), dir+"/hard has 2 names (hard links)") {
			t.Errorf("%s: a hard link: error %v", name, err)
		}
	}
	for _, name := range []string{"victim", "file"} {
		if owner, _ := ownerAndMode(t, filepath.Join(dir, name)); owner != own {
			t.Errorf("%s was given to %v", name, owner)
		}
	}
}

// TestWriteOwned: another user's file is replaced, and links aren't followed.
func TestWriteOwned(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for i, owner := range []host.Owner{other(), other(), {UID: 7, GID: 8}} {
		changed, err := onlyFiles().WriteOwned(path, []byte("x"), 0o640, owner)
		if err != nil || changed != (i != 1) {
			t.Errorf("%d: changed %v, error %v", i, changed, err)
		}
		if got, mode := ownerAndMode(t, path); got != owner || mode != 0o640 {
			t.Errorf("%d: owner %v, mode %v", i, got, mode)
		}
	}
	fixture.PutMode(t, filepath.Join(dir, "victim"), "of root", 0o600)
	if err := os.Link(filepath.Join(dir, "victim"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if _, err := onlyFiles().WriteOwned(filepath.Join(dir, "hard"), []byte("of root"), 0o600, other()); err != nil {
		t.Fatal(err)
	}
	if owner, _ := ownerAndMode(t, filepath.Join(dir, "victim")); owner != own {
		t.Errorf("the other name of a file was given to %v", owner)
	}
}

// TestGiveTree: files another user may have planted aren't given away.
func TestGiveTree(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	fixture.Plant(t, dir, "data/member/wal/0.wal", "data/member/snap/db", "data/lost+found/", "secret/file",
		"data/soft -> ../secret", "data/member/file -> ../../secret/file", "moved -> data")
	if err := unix.Mkfifo(dir+"/data/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := onlyFiles().SetTreeOwner(dir+"/moved", other()) // root's own link to the directory
	if err != nil {
		t.Fatal(err)
	}
	checkKept(t, dir+"/moved/", kept, "fifo", "member/file", "soft")
	for path, want := range map[string]host.Owner{
		"data": other(), "data/member": other(), "data/member/wal/0.wal": other(), "data/member/snap/db": other(),
		"secret": own, "secret/file": own, "data/soft": own, "data/fifo": own, "data/lost+found": own, "moved": own,
	} {
		if got, _ := ownerAndMode(t, filepath.Join(dir, path)); got != want {
			t.Errorf("%s is %v's, want %v", path, got, want)
		}
	}

	// The tree is complete, so later files are ignored.
	fixture.Plant(t, dir, "data/later")
	if kept, err := onlyFiles().SetTreeOwner(dir+"/data", other()); err != nil || kept != nil {
		t.Errorf("the second time: kept %v, error %v", kept, err)
	}
	if got, _ := ownerAndMode(t, dir+"/data/later"); got != own {
		t.Errorf("a root file was given to %v", got)
	}
}

func checkKept(t *testing.T, dir string, got []string, want ...string) {
	t.Helper()
	var names []string
	for _, path := range got {
		names = append(names, strings.TrimPrefix(path, dir))
	}
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// TestGiveTreeRefuses a hard link before the top belongs to the other user, who could then plant more.
func TestGiveTreeRefuses(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	fixture.Plant(t, dir, "data/member/wal/0.wal", "secret")
	if err := os.Link(dir+"/secret", dir+"/data/hard"); err != nil {
		t.Fatal(err)
	}
	_, err := onlyFiles().SetTreeOwner(dir+"/data", other())
	if err == nil || !strings.Contains(err.Error(), dir+"/data/hard has 2 names (hard links)") {
		t.Errorf("error %v", err)
	}
	for _, path := range []string{"secret", "data"} {
		if got, _ := ownerAndMode(t, filepath.Join(dir, path)); got != own {
			t.Errorf("%s was given to %v", path, got)
		}
	}
	if err := os.Remove(dir + "/data/hard"); err != nil {
		t.Fatal(err)
	}
	if _, err := onlyFiles().SetTreeOwner(dir+"/data", other()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]error{"none": fs.ErrNotExist, "secret/f": unix.ENOTDIR} {
		if _, err := onlyFiles().SetTreeOwner(filepath.Join(dir, name), other()); !errors.Is(err, want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	fixture.Plant(t, dir, "deep/"+strings.Repeat("d/", deepest+2))
	if _, err := onlyFiles().SetTreeOwner(dir+"/deep", other()); err == nil || !strings.Contains(err.Error(), "deeper than 100 directories") {
		t.Errorf("a deep directory: error %v", err)
	}
	var kind *host.KindError
	if _, err := onlyFiles().SetTreeOwner(dir+"/secret", other()); !errors.As(err, &kind) {
		t.Errorf("a file: error %v", err)
	}
}

// TestGiveTreeStaysInItsMount: directories and files mounted below stay as they are.
func TestGiveTreeStaysInItsMount(t *testing.T) {
	asRoot(t)
	if !apart.Isolated(t) {
		return
	}
	dir := t.TempDir()
	fixture.Plant(t, dir, "data/member/db", "data/disk/", "data/file", "elsewhere/f", "outside")
	apart.Bind(t, dir+"/elsewhere", dir+"/data/disk")
	apart.Bind(t, dir+"/outside", dir+"/data/file")
	kept, err := onlyFiles().SetTreeOwner(dir+"/data", other())
	if err != nil {
		t.Fatal(err)
	}
	checkKept(t, dir+"/data/", kept, "disk", "file")
	for path, want := range map[string]host.Owner{"data": other(), "data/member/db": other(), "elsewhere": own, "elsewhere/f": own, "outside": own} {
		if got, _ := ownerAndMode(t, filepath.Join(dir, path)); got != want {
			t.Errorf("%s is %v's, want %v", path, got, want)
		}
	}
}

// TestLinksOfOthers aren't followed, neither to change their target's owner nor to remove it.
func TestLinksOfOthers(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	fixture.Plant(t, dir, "a/b/secret/file", "a/b/planted -> secret", "way -> a/b/planted/..", "ours -> "+dir+"/a/b/secret")
	if err := os.Lchown(dir+"/a/b/planted", 12345, 23456); err != nil {
		t.Fatal(err)
	}
	r := onlyFiles()
	for name, err := range map[string]error{
		"the directory itself": second(r.SetTreeOwner(dir+"/a/b/planted", other())),
		"on the way":           r.SetOwner(dir+"/a/b/planted/file", other(), 0o600),
		"through ours":         r.SetOwner(dir+"/way/secret/file", other(), 0o600),
		"removal":              second(r.RemoveTree(dir + "/a/b/planted")),
	} {
		if !errors.Is(err, errOthersLink) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got, _ := ownerAndMode(t, dir+"/a/b/secret/file"); got != own {
		t.Errorf("the file was given to %v", got)
	}
	if err := r.SetOwner(dir+"/ours/file", other(), 0o600); err != nil {
		t.Errorf("through a link that root owns: %v", err)
	}
	fixture.Plant(t, dir, "loop -> loop")
	if err := r.SetOwner(dir+"/loop/f", other(), 0o600); !errors.Is(err, unix.ELOOP) {
		t.Errorf("through a link to itself: %v", err)
	}
}
