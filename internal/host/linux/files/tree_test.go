// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestMounts(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "proc/self/", "data/kubelet/", "var/lib/kubelet -> "+root+"/data/kubelet")
	table := "21 1 8:1 / / rw - ext4 /dev/sda rw\n" +
		"22 21 0:5 / /data/kubelet rw shared:1 - tmpfs tmpfs rw\n" +
		"23 22 0:6 / /data/kubelet/pods/a\\040b rw - tmpfs tmpfs rw\n" +
		"24 23 0:7 / /data/kubelet/pods/a\\040b/c\\134 rw - tmpfs tmpfs rw\n" +
		"25 21 0:8 / /data/kubelet-other rw - tmpfs tmpfs rw\nbroken\n"
	if err := os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := onlyFilesAt(root).Mounts("/var/lib/kubelet")
	if diff := cmp.Diff([]string{`/var/lib/kubelet/pods/a b/c\`, "/var/lib/kubelet/pods/a b"}, got); err != nil || diff != "" {
		t.Errorf("%v, mounts (-want +got):\n%s", err, diff)
	}
	if got, err := onlyFilesAt(root).Mounts("/missing"); err != nil || len(got) > 0 {
		t.Errorf("of a directory that does not exist: %v %v", got, err)
	}
}

func TestRemoveTree(t *testing.T) {
	cases := []struct {
		name    string
		planted []string
		want    []string // left over
		change  bool
		fault   string
	}{
		{name: "nothing there", planted: []string{"other"}, want: []string{"other"}},
		{name: "empty", planted: []string{"d/"}, change: true},
		{name: "deep", planted: []string{"d/a/b/c", "d/a/e", "d/.hidden", "other"}, want: []string{"other"}, change: true},
		{
			name:    "symlinks in it are not followed",
			planted: []string{"d/file -> ../other/file", "d/dir -> ../other", "d/up -> ..", "d/loop -> loop", "other/file"},
			want:    []string{"other", "other/file"}, change: true,
		},
		{
			name: "itself a symlink", planted: []string{"disk/kubelet/a/b", "d -> disk/kubelet"},
			want: []string{"d", "disk", "disk/kubelet"}, change: true,
		},
		{
			name: "a symlink to a directory that holds the link", planted: []string{"x/d", "d -> ../"},
			want: []string{"d", "x", "x/d"}, fault: "hold more",
		},
		{name: "a symlink to the root", planted: []string{"d -> /"}, want: []string{"d"}, fault: "to /,"},
		{name: "a symlink to nowhere", planted: []string{"d -> nowhere"}, want: []string{"d"}, fault: "kind: symlink"},
		{name: "a file", planted: []string{"d"}, want: []string{"d"}, fault: "kind: regular file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			fixture.Plant(t, root, c.planted...)
			done, err := onlyFiles().RemoveTree(filepath.Join(root, "d"))
			switch kind, wrong := strings.CutPrefix(c.fault, "kind: "); {
			case wrong:
				checkKind(t, err, filepath.Join(root, "d"), kind, "directory")
			case c.fault == "":
				fact.Error(t, err)
			default:
				fact.Error(t, err, "symlink", c.fault)
			}
			if done.Changed != c.change || len(done.Kept) > 0 {
				t.Errorf("got %+v", done)
			}
			if diff := cmp.Diff(c.want, fixture.Listed(t, root)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			again, _ := onlyFiles().RemoveTree(filepath.Join(root, "d"))
			if again.Changed {
				t.Error("a second removal changed something")
			}
		})
	}
}

// Sockets, pipes, devices and directories without permissions are removed like anything else.
func TestRemoveTreeOfOddThings(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "d/locked/inside/file")
	if err := unix.Mkfifo(filepath.Join(root, "d/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		for _, dir := range []string{"d/locked/inside", "d/locked", "d"} {
			if err := os.Chmod(filepath.Join(root, dir), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := onlyFiles().RemoveTree(filepath.Join(root, "d")); err != nil {
		t.Error(err)
	}
	if left := fixture.Listed(t, root); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A Pod can make directories deeper than this process can keep open.
func TestRemoveTreeOfGreatDepth(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "d/x/")
	fd, err := unix.Open(filepath.Join(root, "d/x"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 600
	for range depth {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	narrow := unix.Rlimit{Cur: min(limit.Cur, 300), Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &narrow); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	if _, err := onlyFiles().RemoveTree(filepath.Join(root, "d")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// If another program turns a directory into a symlink between two looks, the link isn't followed.
func TestRemoveTreeAgainstSymlinkRace(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "precious/sub/file", "d/real/sub/file")
	d, target := filepath.Join(root, "d"), filepath.Join(root, "precious")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		swap, name := filepath.Join(d, "swap"), filepath.Join(d, "name")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Mkdir(name, 0o755)
			_ = os.Symlink(target, swap)
			_ = unix.Renameat2(unix.AT_FDCWD, swap, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
			_ = os.Symlink(target, filepath.Join(d, "other"))
		}
	}()
	for range 100 {
		_, _ = onlyFiles().RemoveTree(d) // may fail: another goroutine writes there
		_ = os.Mkdir(d, 0o755)
	}
	close(stop)
	<-stopped
	if diff := cmp.Diff([]string{"sub", "sub/file"}, fixture.Listed(t, target)); diff != "" {
		t.Errorf("a symlink was followed (-want +got):\n%s", diff)
	}
	if _, err := onlyFiles().RemoveTree(d); err != nil {
		t.Error(err)
	}
}

// Mounts aren't crossed, even within the same file system or onto single files.
func TestRemoveTreeCrossesNoMount(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	root := t.TempDir()
	fixture.Plant(t, root, "precious/file", "d/a/mounted/", "d/a/b", "d/config", "d/c/x/y")
	apart.Bind(t, filepath.Join(root, "precious"), filepath.Join(root, "d/a/mounted"))
	apart.Bind(t, filepath.Join(root, "precious/file"), filepath.Join(root, "d/config"))
	done, err := onlyFiles().RemoveTree(filepath.Join(root, "d"))
	if err != nil {
		t.Error(err)
	}
	kept := cmp.Diff(map[string]bool{root + "/d/a/mounted": true, root + "/d/config": true}, set(done.Kept))
	if kept != "" || !done.Changed {
		t.Errorf("kept (-want +got):\n%s", kept)
	}
	want := []string{"d", "d/a", "d/a/mounted", "d/a/mounted/file", "d/config", "precious", "precious/file"}
	if diff := cmp.Diff(want, fixture.Listed(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func set(list []string) map[string]bool {
	all := map[string]bool{}
	for _, s := range list {
		all[s] = true
	}
	return all
}

// A mount point is emptied but stays, and so does its file system's own directory.
func TestRemoveTreeOfMountPoint(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	root := t.TempDir()
	fixture.Plant(t, root, "disk/a/b", "disk/lost+found/", "d/")
	apart.Bind(t, filepath.Join(root, "disk"), filepath.Join(root, "d"))
	if stays, err := onlyFiles().SurvivesRemoval(filepath.Join(root, "d")); !stays || err != nil {
		t.Errorf("a mount point stays: %v %v", stays, err)
	}
	for _, changed := range []bool{true, false} {
		done, err := onlyFiles().RemoveTree(filepath.Join(root, "d"))
		if err != nil || len(done.Kept) > 0 || done.Changed != changed {
			t.Errorf("got %+v, %v", done, err)
		}
	}
	want := []string{"d", "d/lost+found", "disk", "disk/lost+found"}
	if diff := cmp.Diff(want, fixture.Listed(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// A directory that existed before gets its mode back. EnsureDir's own is removed.
func TestRemoveTreeGivesDirsBack(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "found/")
	if err := unix.Setxattr(root, rememberedAs, []byte("x"), 0); err != nil {
		t.Skipf("no such attributes here: %v", err)
	}
	h := onlyFiles()
	for range 2 { // a second run must not take the first run's mode for the host's
		for _, name := range []string{"found", "made"} {
			if err := h.EnsureDir(filepath.Join(root, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	fixture.Plant(t, root, "found/file", "made/file")
	for _, name := range []string{"found", "made"} {
		if got, err := h.SurvivesRemoval(filepath.Join(root, name)); err != nil || got != (name == "found") {
			t.Errorf("%s stays: %v %v", name, got, err)
		}
		if done, err := h.RemoveTree(filepath.Join(root, name)); err != nil || !done.Changed {
			t.Errorf("%s: %+v %v", name, done, err)
		}
	}
	if diff := cmp.Diff([]string{"found"}, fixture.Listed(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(root, "found")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// Another reset knows that the directory existed before, and another init records its current mode.
	if done, err := h.RemoveTree(filepath.Join(root, "found")); err != nil || done.Changed {
		t.Errorf("once more: %+v %v", done, err)
	}
	if err := os.Chmod(filepath.Join(root, "found"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := h.EnsureDir(filepath.Join(root, "found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := h.RemoveTree(filepath.Join(root, "found")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(root, "found")); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("the second time: %v, %v", info.Mode(), err)
	}
}

// Slipway owns only files it made where nothing was, even after changing them. Somebody else's file in such a place isn't its
// own.
func TestMade(t *testing.T) {
	root := t.TempDir()
	if err := unix.Setxattr(root, rememberedAs, []byte("x"), 0); err != nil {
		t.Skipf("no such attributes here: %v", err)
	}
	fixture.Plant(t, root, "found/file")
	h := onlyFiles()
	if err := h.EnsureDir(filepath.Join(root, "found/a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.EnsureDir(filepath.Join(root, "found"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		for _, name := range []string{"found/file", "found/made", "found/other"} {
			if _, err := h.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	fixture.Plant(t, root, "somebody's")
	if err := os.Rename(filepath.Join(root, "somebody's"), filepath.Join(root, "found/other")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"found": false, "found/file": false, "found/made": true, "found/other": false, "found/a": true, "found/a/b": true, "found/absent": false,
	} {
		if got := h.CreatedBySlipway(filepath.Join(root, name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Failures are named, and the rest is removed.
func TestRemoveTreeGoesOn(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may remove anything")
	}
	root := t.TempDir()
	fixture.Plant(t, root, "d/locked/file", "d/other/file")
	locked := filepath.Join(root, "d/locked")
	if err := os.Chmod(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) })
	_, err := onlyFiles().RemoveTree(filepath.Join(root, "d"))
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "d/locked/file") {
		t.Errorf("error: %v", err)
	}
	if diff := cmp.Diff([]string{"d", "d/locked", "d/locked/file"}, fixture.Listed(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestRemoveEmpty(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "empty/", "full/file", "link -> empty", "file")
	for name, want := range map[string]bool{"full": false, "link": false, "file": false, "missing": false, "empty": true} {
		if removed, err := onlyFiles().RemoveEmpty(filepath.Join(root, name)); err != nil || removed != want {
			t.Errorf("%s: %v %v", name, removed, err)
		}
	}
}

func TestLeftoverOf(t *testing.T) {
	for entry, want := range map[string]string{
		".admin.conf.slipway-ABCDEFGH": "admin.conf", ".admin.conf.slipway-ABC": "", "admin.conf.slipway-ABCDEFGH": "",
		".slipway-ABCDEFGH": "", ".admin.conf": "",
	} {
		if name, found := host.LeftoverOf(entry); name != want || found != (want != "") {
			t.Errorf("%s: %q %v", entry, name, found)
		}
	}
}

// A directory becomes a symlink between the look and the opening.
func TestRemoveDirThatBecameASymlink(t *testing.T) {
	root := t.TempDir()
	fixture.Plant(t, root, "precious/file", "d/name -> ../precious")
	top := &treeRemoval{}
	if err := top.begin(filepath.Join(root, "d")); err != nil {
		t.Fatal(err)
	}
	defer top.top.Close()
	if err := top.removeDir(top.top, "name", 0); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"d", "d/name", "precious", "precious/file"}, fixture.Listed(t, root)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
