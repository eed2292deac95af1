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
	"github.com/slipway-k8s/slipway/test/stage"
)

func newRootless(t *testing.T) (Rootless, *stage.Host, *bytes.Buffer) {
	t.Helper()
	h, said := stage.New(t), &bytes.Buffer{}
	fixture.Put(t, h.Root, PasswdFile, fixture.Passwd)
	fixture.Put(t, h.Root, GroupFile, fixture.Group)
	n := &config.Node{Machine: config.Machine{Paths: config.Paths{PKI: "/etc/kubernetes/pki", Kubernetes: "/etc/kubernetes"}}}
	n.Cluster.Networking.ServiceSubnet = "10.96.0.0/12"
	n.Cluster.FeatureGates = map[string]bool{"RootlessControlPlane": true}
	n.Cluster.Etcd.Local = &config.LocalEtcd{DataDir: "/var/lib/etcd"}
	return Rootless{Host: h, Config: n, UI: ui.NewLines(said, said)}, h, said
}

func locks(h *stage.Host) []string { return h.Did("lock") }

func TestEnsureAndRemove(t *testing.T) {
	r, h, said := newRootless(t)
	before, err := r.Numbers()
	if err != nil {
		t.Fatal(err)
	}
	released := 0
	h.On.LockAccounts = func() (func(), error) { return func() { released++ }, nil }
	for range 2 { // the second time changes nothing
		if err := r.Ensure(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(fixture.RootlessPasswd, fixture.Get(t, h.Root, PasswdFile)) + cmp.Diff(fixture.RootlessGroup, fixture.Get(t, h.Root, GroupFile)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(locks(h)) != 1 || released != 1 || strings.Count(said.String(), "Adding") != 2 {
		t.Errorf("%d locks, %d released; said:\n%s", len(locks(h)), released, said)
	}
	after, err := r.Numbers()
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("Numbers differ from the numbers that Ensure used: %v\n%s", err, diff)
	}

	const theirs = "kubeadm-ks:x:995:995::/home/ks:/bin/sh\n"
	fixture.Put(t, h.Root, PasswdFile, fixture.Passwd+theirs)
	for _, remove := range []func() (bool, error){r.RemoveUsers, r.RemoveGroups} {
		if changed, err := remove(); err != nil || changed != (strings.Contains(said.String(), "Removed")) {
			t.Errorf("changed %v, error %v", changed, err)
		}
	}
	const group = "\nkubeadm-ks:x:995:kubeadm-ks\n" // a user without its group is broken
	if diff := cmp.Diff(fixture.Passwd+theirs, fixture.Get(t, h.Root, PasswdFile)) + cmp.Diff(fixture.Group+group, fixture.Get(t, h.Root, GroupFile)); diff != "" {
		t.Errorf("after the removal (-want +got):\n%s", diff)
	}
}

// TestLocked: lines another program adds right before the lock is taken survive adding and removing accounts.
func TestLocked(t *testing.T) {
	r, h, _ := newRootless(t)
	adds := func(line string) { // as soon as the accounts are locked
		h.On.LockAccounts = func() (func(), error) {
			fixture.Put(t, h.Root, PasswdFile, fixture.Get(t, h.Root, PasswdFile)+line)
			return func() {}, nil
		}
	}
	const theirs, more = "them:x:998:998::/:/bin/sh\n", "more:x:1001:1001::/:/bin/sh\n"
	adds(theirs)
	if err := r.Ensure(); err != nil {
		t.Fatal(err)
	}
	if text := fixture.Get(t, h.Root, PasswdFile); !strings.Contains(text, theirs) || !strings.Contains(text, "kubeadm-etcd:x:997:") {
		t.Errorf("passwd:\n%s", text)
	}
	adds(more)
	if changed, err := r.RemoveUsers(); !changed || err != nil {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	if text := fixture.Get(t, h.Root, PasswdFile); text != fixture.Passwd+theirs+more {
		t.Errorf("passwd after the removal:\n%s", text)
	}
	held := errors.New("held")
	h.Fail["lock accounts"] = held
	if err := r.Ensure(); !errors.Is(err, held) || strings.Contains(fixture.Get(t, h.Root, PasswdFile), "kubeadm-") {
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
			fixture.Put(t, h.Root, PasswdFile, test.passwd)
			fact.Error(t, r.Ensure(), test.want...)
		})
	}
}

// TestGive names paths that keep their owner, skips missing files, and fails if the owner of etcd's data can't be changed.
func TestGive(t *testing.T) {
	r, h, said := newRootless(t)
	fixture.Put(t, h.Root, "/etc/kubernetes/pki/etcd/peer.key", "x")
	var fail error
	h.On.GiveTree = func(string, host.Owner) ([]string, error) { return []string{"/var/lib/etcd/link"}, fail }
	if err := r.Give(manifests.EtcdName); err != nil || strings.Join(h.Owned, " ") != "/etc/kubernetes/pki/etcd/peer.key 998:999" {
		t.Errorf("gave %v, error %v", h.Owned, err)
	}
	fact.In(t, said.String(), "/var/lib/etcd/link")
	fail = fs.ErrPermission
	if err := r.Give(manifests.EtcdName); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

func TestWithoutTheGate(t *testing.T) {
	r, h, _ := newRootless(t)
	r.Config.Cluster.FeatureGates = nil
	users, err := r.Numbers()
	if err := errors.Join(err, r.Ensure(), r.Give(manifests.APIServerName)); err != nil || users != nil || len(locks(h)) > 0 || len(h.Owned) > 0 {
		t.Errorf("users %v, gave away %v, error %v", users, h.Owned, err)
	}
}
