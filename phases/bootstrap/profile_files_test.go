// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func hardened(t *testing.T, documents string) *config.Node {
	t.Helper()
	return fixture.NodeWith(t, documents, config.InitFlags{Given: []string{"profile"}, Profile: profile.CIS})
}

const (
	policyFile    = "/etc/kubernetes/audit/audit.yaml"
	admissionFile = "/etc/kubernetes/hardening/admission.yaml"
)

// hasProfileFiles checks the files, and who may read them.
func hasProfileFiles(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	modes := map[string]fs.FileMode{"/etc/kubernetes/audit": 0o755, "/etc/kubernetes/hardening": 0o755, "/var/log/kubernetes/audit": 0o700}
	for _, f := range profile.Files() {
		modes[f.Path] = 0o600
		if s.Get(t, f.Path) != string(f.Data) {
			t.Errorf("%s has other content", f.Path)
		}
	}
	for path, want := range modes {
		if info, err := os.Stat(s.Root + path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s should have mode %v: %v, %v", path, want, info, err)
		}
	}
}

func TestProfileFiles(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config = hardened(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certificates(), controlPlane())
	hasProfileFiles(t, s)

	before := phasetest.Stamps(t, s.Root)
	s.Play(t, controlPlane())
	if diff := cmp.Diff(before, phasetest.Stamps(t, s.Root)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
}

// TestProfileFilesOfOthersStay: an operator may have put a policy of their own there, before the first run or after it.
func TestProfileFilesOfOthersStay(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config = hardened(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Put(t, policyFile, "mine\n")
	s.Play(t, certificates(), controlPlane())
	s.Append(t, admissionFile, "# edited\n")
	s.Said.Reset()
	s.Play(t, controlPlane())
	fact.In(t, s.Said.String(), policyFile, admissionFile, "# edited", "`slipway init phase control-plane apiserver`")
	if s.Get(t, policyFile) != "mine\n" || !strings.HasSuffix(s.Get(t, admissionFile), "# edited\n") {
		t.Error("an edited file was written over")
	}
}

func TestRootlessProfileFiles(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Config = hardened(t, fixture.InitDocument+fixture.ClusterDocument+"featureGates: {RootlessControlPlane: true}\n")
	s.Play(t, certificates(), controlPlane())
	hasProfileFiles(t, s)
	for _, want := range []string{policyFile, admissionFile, "/etc/kubernetes/hardening/authentication.yaml", "/var/log/kubernetes/audit"} {
		if !slices.Contains(s.FakeHost.Owned, want+" 997:997") {
			t.Errorf("%s is not the API server's: %v", want, s.FakeHost.Owned)
		}
	}
}

// TestJoinWritesProfileFiles: a joining control plane follows the cluster's configuration.
func TestJoinWritesProfileFiles(t *testing.T) {
	n := hardened(t, fixture.InitDocument+fixture.ClusterDocument+"controlPlaneEndpoint: api.example.org:6443\n")
	stored, err := n.KubeadmConfigYAML()
	if err != nil {
		t.Fatal(err)
	}
	s := newPlaneStage(t, string(stored))
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, controlPlanePrepare())
	hasProfileFiles(t, s.Stage)
}
