// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// cleanUp does a reset's work, on any host.
func cleanUp(t *testing.T, h host.Host, dir string) {
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

// The plan of a cleanup matches the cleanup, in the same words, and a plan after it finds nothing.
func TestPlanOfCleanup(t *testing.T) {
	dir := t.TempDir()
	fixture.Plant(t, dir, "kubernetes/pki/ca.key", "kubernetes/pki/etcd/ca.key", "kubernetes/admin.conf", "full/file", "kubelet -> disk/kubelet", "disk/kubelet/config.yaml")
	before := fixture.Listed(t, dir)
	planned, plan := fixture.Records()
	overlay := NewOverlay(linux.New(), plan)
	cleanUp(t, overlay, dir)
	want := []host.Action{
		{Verb: host.RemoveTree, Path: dir + "/kubernetes/pki", Entries: []string{"ca.key", "etcd/"}},
		{Verb: host.RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml"}},
		{Verb: host.Remove, Path: dir + "/kubernetes/admin.conf"},
		{Verb: host.Remove, Path: dir + "/kubernetes"},
	}
	if diff := cmp.Diff(want, *planned); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if _, err := overlay.ReadFile(dir + "/kubernetes/pki/etcd/ca.key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the plan, a file of a removed directory: %v", err)
	}
	if diff := cmp.Diff(before, fixture.Listed(t, dir)); diff != "" {
		t.Errorf("the plan removed something (-before +after):\n%s", diff)
	}
	done, record := fixture.Records()
	cleanUp(t, NewRecorder(linux.New(), record), dir)
	if diff := cmp.Diff(*planned, *done); diff != "" {
		t.Errorf("the run differs from the plan (-planned +done):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"disk", "disk/kubelet", "full", "full/file", "kubelet"}, fixture.Listed(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	again, plan := fixture.Records()
	cleanUp(t, NewOverlay(linux.New(), plan), dir)
	if len(*again) > 0 {
		t.Errorf("a second plan: %v", *again)
	}
}

// roomy is a host with two file systems of known space: that of the directory other, and that of all others.
type roomy struct {
	*linux.Host
	other string
}

func (r roomy) Space(path string) (host.Space, error) {
	if strings.HasPrefix(path, r.other) {
		return host.Space{Free: 5, Device: 2}, nil
	}
	return host.Space{Free: 5, Device: 1}, nil
}

// TestPlanFreesSpace: a plan's checks see the space that its removals free, once, where they free it.
func TestPlanFreesSpace(t *testing.T) {
	dir := t.TempDir()
	fixture.Plant(t, dir, "etcd/member.new/snap/", "etcd/member/", "other/")
	const size = 1 << 16
	if err := os.WriteFile(filepath.Join(dir, "etcd/member.new/snap/db"), bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	_, record := fixture.Records()
	o := NewOverlay(roomy{linux.New(), filepath.Join(dir, "other")}, record)
	free := func(name string) uint64 {
		s, err := o.Space(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return s.Free
	}
	if now := free("etcd"); now != 5 {
		t.Errorf("before, %d bytes are free", now)
	}
	for range 2 {
		if _, err := o.RemoveTree(filepath.Join(dir, "etcd/member.new")); err != nil {
			t.Fatal(err)
		}
		if err := o.EnsureDir(filepath.Join(dir, "etcd/member.new"), 0o700); err != nil {
			t.Fatal(err)
		}
		if now := free("etcd"); now < size || now >= 2*size {
			t.Errorf("%d bytes are free", now)
		}
	}
	if now := free("other"); now != 5 {
		t.Errorf("%d bytes are free on another file system", now)
	}
}

// A plan omits mounts, unless it unmounts them first.
func TestPlanOfCleanupWithMounts(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	dir := t.TempDir()
	fixture.Plant(t, dir, "disk/file", "kubelet/pods/a/volume/", "kubelet/config.yaml")
	volume := filepath.Join(dir, "kubelet/pods/a/volume")
	apart.Bind(t, filepath.Join(dir, "disk"), volume)
	for _, unmount := range []bool{false, true} {
		planned, plan := fixture.Records()
		overlay := NewOverlay(linux.New(), plan)
		mounts, err := overlay.Mounts(filepath.Join(dir, "kubelet/pods"))
		if diff := cmp.Diff([]string{volume}, mounts); err != nil || diff != "" {
			t.Fatalf("%v, mounts (-want +got):\n%s", err, diff)
		}
		want := []host.Action{{Verb: host.RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml"}}}
		if unmount {
			if err := overlay.Unmount(volume, nil); err != nil {
				t.Fatal(err)
			}
			want = []host.Action{{Verb: host.Unmount, Path: volume}, {Verb: host.RemoveTree, Path: dir + "/kubelet", Entries: []string{"config.yaml", "pods/"}}}
		}
		done, err := overlay.RemoveTree(filepath.Join(dir, "kubelet"))
		if err != nil || len(done.Kept) > 0 == unmount {
			t.Errorf("%+v %v", done, err)
		}
		if diff := cmp.Diff(want, *planned); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
	}
	h := linux.New()
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
