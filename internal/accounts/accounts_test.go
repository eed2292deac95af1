// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// testHost is a host in a directory. Tests do not need root to change the owners of its files.
type testHost struct {
	*host.Real
	root  string
	owned []string // what was given to whom
	kept  []string // by GiveTree
	fail  error    // of GiveTree
	// locked is called as soon as the accounts are locked.
	locked   func()
	locks    int
	noLock   error
	released int
}

func (h *testHost) Give(path string, owner host.Owner, _ fs.FileMode) error {
	if _, err := h.Lstat(path); err != nil {
		return err
	}
	h.owned = append(h.owned, fmt.Sprintf("%s %d:%d", path, owner.UID, owner.GID))
	return nil
}

func (h *testHost) GiveTree(string, host.Owner) ([]string, error) { return h.kept, h.fail }

func (h *testHost) LockAccounts() (func(), error) {
	h.locks++
	if h.locked != nil {
		h.locked()
	}
	return func() { h.released++ }, h.noLock
}

func (h *testHost) put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, h.root, path, text)
}

func (h *testHost) get(t *testing.T, path string) string {
	t.Helper()
	return fixture.Get(t, h.root, path)
}

// newRootless returns the accounts of a rootless control plane, and the output.
func newRootless(t *testing.T) (Rootless, *testHost, *bytes.Buffer) {
	t.Helper()
	root, said := t.TempDir(), &bytes.Buffer{}
	h := &testHost{Real: host.NewAt(root), root: root}
	h.put(t, PasswdFile, fixture.Passwd)
	h.put(t, GroupFile, fixture.Group)
	n := &config.Node{Paths: config.Paths{PKI: "/etc/kubernetes/pki", Kubernetes: "/etc/kubernetes"}}
	n.Cluster.Networking.ServiceSubnet = "10.96.0.0/12"
	n.Cluster.FeatureGates = map[string]bool{"RootlessControlPlane": true}
	n.Cluster.Etcd.Local = &config.LocalEtcd{DataDir: "/var/lib/etcd"}
	return Rootless{Host: h, Config: n, UI: ui.NewLines(said, said)}, h, said
}

func TestEnsureAndRemove(t *testing.T) {
	r, h, said := newRootless(t)
	before, err := r.Numbers()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := r.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(fixture.RootlessPasswd, h.get(t, PasswdFile)) + cmp.Diff(fixture.RootlessGroup, h.get(t, GroupFile)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if h.locks != 1 || h.released != 1 || strings.Count(said.String(), "Adding") != 2 {
		t.Errorf("%d locks, %d released; said:\n%s", h.locks, h.released, said)
	}
	after, err := r.Numbers()
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("Numbers differ from those that Ensure used: %v\n%s", err, diff)
	}

	const theirs = "kubeadm-ks:x:995:995::/home/ks:/bin/sh\n"
	h.put(t, PasswdFile, fixture.Passwd+theirs)
	for _, remove := range []func() (bool, error){r.RemoveUsers, r.RemoveGroups} {
		if changed, err := remove(); err != nil || changed != (strings.Contains(said.String(), "Removed")) {
			t.Errorf("changed %v, error %v", changed, err)
		}
	}
	if diff := cmp.Diff(fixture.Passwd+theirs, h.get(t, PasswdFile)) + cmp.Diff(fixture.Group+"\n", h.get(t, GroupFile)); diff != "" {
		t.Errorf("after the removal (-want +got):\n%s", diff)
	}
}

// TestLocked: lines that another program adds right before the lock is taken stay, both when accounts are added and
// when they are removed.
func TestLocked(t *testing.T) {
	r, h, _ := newRootless(t)
	adds := func(line string) func() { return func() { h.put(t, PasswdFile, h.get(t, PasswdFile)+line) } }
	const theirs, more = "them:x:998:998::/:/bin/sh\n", "more:x:1001:1001::/:/bin/sh\n"
	h.locked = adds(theirs)
	if err := r.Ensure(); err != nil {
		t.Fatal(err)
	}
	if text := h.get(t, PasswdFile); !strings.Contains(text, theirs) || !strings.Contains(text, "kubeadm-etcd:x:997:") {
		t.Errorf("passwd:\n%s", text)
	}
	h.locked = adds(more)
	if changed, err := r.RemoveUsers(); !changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	if text := h.get(t, PasswdFile); text != fixture.Passwd+theirs+more {
		t.Errorf("passwd after the removal:\n%s", text)
	}
	h.locked, h.noLock = nil, errors.New("held")
	if err := r.Ensure(); !errors.Is(err, h.noLock) || strings.Contains(h.get(t, PasswdFile), "kubeadm-") {
		t.Errorf("without the lock: error %v", err)
	}
}

func TestFaults(t *testing.T) {
	full := fixture.Passwd
	for id := minSystemID; id <= maxSystemID; id++ {
		full += fmt.Sprintf("u%d:x:%d:1::/:/bin/false\n", id, id)
	}
	for name, test := range map[string]struct {
		passwd string
		want   []string
	}{
		"no number":  {"root:x:zero:0::/:/bin/sh\n", []string{"/etc/passwd", `account "root"`, "third field"}},
		"no place":   {full, []string{"/etc/passwd", "from 100 to 999", `"kubeadm-etcd"`}},
		"no account": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, h, _ := newRootless(t)
			h.put(t, PasswdFile, test.passwd)
			fact.Error(t, r.Ensure(), test.want...)
		})
	}
}

// TestGive names what keeps its owner, skips what is missing, and fails if the owner of etcd's data cannot be changed.
func TestGive(t *testing.T) {
	r, h, said := newRootless(t)
	h.put(t, "/etc/kubernetes/pki/etcd/peer.key", "x")
	h.kept = []string{"/var/lib/etcd/link"}
	if err := r.Give(manifests.EtcdName); err != nil || strings.Join(h.owned, " ") != "/etc/kubernetes/pki/etcd/peer.key 998:999" {
		t.Errorf("gave %v, error %v", h.owned, err)
	}
	fact.In(t, said.String(), "/var/lib/etcd/link")
	h.fail = fs.ErrPermission
	if err := r.Give(manifests.EtcdName); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

func TestWithoutTheGate(t *testing.T) {
	r, h, _ := newRootless(t)
	r.Config.Cluster.FeatureGates = nil
	users, err := r.Numbers()
	if err := errors.Join(err, r.Ensure(), r.Give(manifests.APIServerName)); err != nil || users != nil || h.locks > 0 || len(h.owned) > 0 {
		t.Errorf("users %v, gave away %v, error %v", users, h.owned, err)
	}
}
