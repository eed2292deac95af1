// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cleanUp does what reset does, on any host.
func cleanUp(t *testing.T, h Host, dir string) {
	t.Helper()
	for _, name := range []string{"kubernetes/pki", "kubelet", "missing"} {
		if _, err := h.RemoveTree(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := h.Remove(filepath.Join(dir, "kubernetes/admin.conf")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"kubernetes", "full"} {
		if _, err := h.RemoveEmpty(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// The plan of a cleanup matches what is then done, in the same words, and a plan after it finds nothing.
func TestPlanOfCleanup(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "kubernetes/pki/ca.key", "kubernetes/pki/etcd/ca.key", "kubernetes/admin.conf", "full/file", "kubelet -> disk/kubelet", "disk/kubelet/config.yaml")
	before := listed(t, dir)
	planned, plan := records()
	overlay := NewOverlay(New(), plan)
	cleanUp(t, overlay, dir)
	want := []Action{
		{Verb: RemoveTree, Path: dir + "/kubernetes/pki", Entries: []string{"ca.key", "etcd/"}},
		{Verb: RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml"}},
		{Verb: Remove, Path: dir + "/kubernetes/admin.conf"},
		{Verb: Remove, Path: dir + "/kubernetes"},
	}
	if diff := cmp.Diff(want, *planned); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if _, err := overlay.ReadFile(dir + "/kubernetes/pki/etcd/ca.key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the plan, a file of a removed directory: %v", err)
	}
	if diff := cmp.Diff(before, listed(t, dir)); diff != "" {
		t.Errorf("the plan removed something (-before +after):\n%s", diff)
	}
	done, record := records()
	cleanUp(t, NewRecorder(New(), record), dir)
	if diff := cmp.Diff(*planned, *done); diff != "" {
		t.Errorf("the run differs from the plan (-planned +done):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"disk", "disk/kubelet", "full", "full/file", "kubelet"}, listed(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	again, plan := records()
	cleanUp(t, NewOverlay(New(), plan), dir)
	if len(*again) > 0 {
		t.Errorf("a second plan: %v", *again)
	}
}

// A plan omits what is mounted, unless it unmounts that first.
func TestPlanOfCleanupWithMounts(t *testing.T) {
	if !isolated(t) {
		return
	}
	dir := t.TempDir()
	plant(t, dir, "disk/file", "kubelet/pods/a/volume/", "kubelet/config.yaml")
	volume := filepath.Join(dir, "kubelet/pods/a/volume")
	bind(t, filepath.Join(dir, "disk"), volume)
	for _, unmount := range []bool{false, true} {
		planned, plan := records()
		overlay := NewOverlay(New(), plan)
		mounts, err := overlay.Mounts(filepath.Join(dir, "kubelet/pods"))
		if diff := cmp.Diff([]string{volume}, mounts); err != nil || diff != "" {
			t.Fatalf("%v, mounts (-want +got):\n%s", err, diff)
		}
		want := []Action{{Verb: RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml"}}}
		if unmount {
			if err := overlay.Unmount(volume, nil); err != nil {
				t.Fatal(err)
			}
			want = []Action{{Verb: Unmount, Path: volume}, {Verb: RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml", "pods/"}}}
		}
		done, err := overlay.RemoveTree(filepath.Join(dir, "kubelet"))
		if err != nil || len(done.Kept) > 0 == unmount {
			t.Errorf("%+v %v", done, err)
		}
		if diff := cmp.Diff(want, *planned); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	}
	h := New()
	for range 2 { // as after an interrupted run
		if err := h.Unmount(volume, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.RemoveTree(filepath.Join(dir, "kubelet")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "disk/file")); err != nil || string(data) != "disk/file" {
		t.Errorf("what was mounted: %q %v", data, err)
	}
}

func TestMounts(t *testing.T) {
	root := t.TempDir()
	plant(t, root, "proc/self/", "data/kubelet/", "var/lib/kubelet -> "+root+"/data/kubelet")
	table := "21 1 8:1 / / rw - ext4 /dev/sda rw\n" +
		"22 21 0:5 / /data/kubelet rw shared:1 - tmpfs tmpfs rw\n" +
		"23 22 0:6 / /data/kubelet/pods/a\\040b rw - tmpfs tmpfs rw\n" +
		"24 23 0:7 / /data/kubelet/pods/a\\040b/c\\134 rw - tmpfs tmpfs rw\n" +
		"25 21 0:8 / /data/kubelet-other rw - tmpfs tmpfs rw\nbroken\n"
	if err := os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := NewAt(root).Mounts("/var/lib/kubelet")
	if diff := cmp.Diff([]string{`/var/lib/kubelet/pods/a b/c\`, "/var/lib/kubelet/pods/a b"}, got); err != nil || diff != "" {
		t.Errorf("%v, mounts (-want +got):\n%s", err, diff)
	}
	if got, err := NewAt(root).Mounts("/missing"); err != nil || len(got) > 0 {
		t.Errorf("of a directory that does not exist: %v %v", got, err)
	}
}
