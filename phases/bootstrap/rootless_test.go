// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestRootlessAccounts(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Play(t, certificates(), kubeconfigs(), localEtcd(), controlPlane())

	if diff := cmp.Diff(fixture.RootlessPasswd, s.Get(t, accounts.PasswdFile)); diff != "" {
		t.Errorf("passwd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fixture.RootlessGroup, s.Get(t, accounts.GroupFile)); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	if scheduler := s.Get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"); !strings.Contains(scheduler, "runAsUser: 995") {
		t.Errorf("the scheduler does not run as its user:\n%s", scheduler)
	}

	// The second run keeps the numbers and writes nothing.
	before, jobs := phasetest.Stamps(t, s.Root), len(s.FakeHost.Jobs)
	s.Play(t, certificates(), kubeconfigs(), localEtcd(), controlPlane())
	if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
	if len(s.FakeHost.Jobs) != jobs {
		t.Errorf("the second run did %v", s.FakeHost.Jobs[jobs:])
	}
}

func TestRootlessOwnerships(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Play(t, certificates(), kubeconfigs())
	s.Put(t, "/var/lib/kubelet/config.yaml", "x") // from a phase that isn't played
	s.Play(t, localEtcd(), controlPlane())
	slices.Sort(s.FakeHost.Owned)
	const pki = "/etc/kubernetes/pki/"
	want := []string{
		"/etc/kubernetes/controller-manager.conf 996:996",
		pki + "apiserver-etcd-client.key 997:997",
		pki + "apiserver-kubelet-client.key 997:997",
		pki + "apiserver.key 997:997",
		pki + "ca.key 996:996",
		pki + "etcd/peer.key 998:999",
		pki + "etcd/server.key 998:999",
		pki + "front-proxy-client.key 997:997",
		pki + "sa.key 0:994", // for the API server
		pki + "sa.key 0:994", // for the controller manager
		pki + "sa.pub 997:997",
		"/etc/kubernetes/scheduler.conf 995:995",
		"/var/lib/etcd 998:999",
	}
	if diff := cmp.Diff(want, s.FakeHost.Owned); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	listed := phasetest.Listing(t, s.Root)
	for _, want := range []string{pki + "sa.key -rw-r-----", pki + "ca.key -rw-------", pki + "apiserver.key -rw-------"} {
		if !slices.Contains(listed, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(listed, "\n"))
		}
	}
}

// TestRootlessLeavesOutWhatIsMissing: an external CA's key isn't on the host.
func TestRootlessLeavesOutWhatIsMissing(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Play(t, controlPlane())
	if len(s.FakeHost.Owned) > 0 {
		t.Errorf("gave away %v", s.FakeHost.Owned)
	}
}
