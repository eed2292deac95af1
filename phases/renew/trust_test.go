// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func twoCAs(t *testing.T, s *phasetest.Stage) (old, next certs.Pair) {
	t.Helper()
	old, err := s.PKI().CA(certs.CA)
	phasetest.Fatal(t, err)
	made := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(1000*time.Hour))
	return old, certs.Pair{Cert: made.Cert, Key: made.Key}
}

// renews runs `certs renew all --restart` on a control plane with a lone etcd.
func renews(t *testing.T, s *phasetest.Stage) error {
	t.Helper()
	s.FakeHost.Runs(time.Time{}, manifests.Components(s.Config)...)
	s.Graces()
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	s.FakeHost.Jobs = nil
	return step.Run(t.Context(), s.Env, Certificates(Options{Restart: true}), step.Options{})
}

// trusts checks which CAs a kubeconfig file trusts.
func trusts(t *testing.T, s *phasetest.Stage, path string, want ...certs.Pair) {
	t.Helper()
	_, trusted, err := kubeconfig.Server([]byte(s.Get(t, path)))
	phasetest.Fatal(t, err)
	for _, ca := range want {
		if len(trusted) != len(want) || !slices.ContainsFunc(trusted, ca.Cert.Equal) {
			t.Errorf("%s trusts %d CAs, want %d", path, len(trusted), len(want))
		}
	}
}

// TestReplacedCA: if a CA didn't issue the kubelet's certificate, an error shows both, before anything is written or restarted.
func TestReplacedCA(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	old, next := twoCAs(t, s)
	s.PutCA(t, next)
	err := renews(t, s)
	fact.Error(t, err, phasetest.KubeletPEM, phasetest.PKIDir+"ca.crt", hex.EncodeToString(old.Cert.SubjectKeyId[:8]), hex.EncodeToString(next.Cert.SubjectKeyId[:8]))
	if len(s.FakeHost.Jobs) > 0 {
		t.Errorf("it did %v", s.FakeHost.Jobs)
	}
	fact.NotIn(t, s.Said.String(), "Renewed")

	// Certificates renewed by an interrupted run, or by somebody else, don't cause a restart either.
	for _, row := range pki.RenewableRows() {
		phasetest.Fatal(t, pki.Renewal{Store: s.PKI()}.Renew(row.Name))
	}
	s.FakeHost.Jobs = nil
	fact.Error(t, step.Run(t.Context(), s.Env, restartPhases(), step.Options{}), phasetest.KubeletPEM, phasetest.PKIDir+"ca.crt")
	if len(s.FakeHost.Jobs) > 0 {
		t.Errorf("it did %v", s.FakeHost.Jobs)
	}

	s.PutCA(t, old)
	if err := renews(t, s); err != nil {
		t.Errorf("with the former CA: %v", err)
	}
}

// TestTwoCAs: while a CA is being replaced, everything trusts both, and the first signs.
func TestTwoCAs(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	old, next := twoCAs(t, s)
	const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	for i, list := range [][]certs.Pair{{old, next}, {next, old}, {old}} {
		s.PutCA(t, list...)
		phasetest.Fatal(t, renews(t, s))
		for _, path := range []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/controller-manager.conf", phasetest.KubeletConf} {
			trusts(t, s, path, list...)
		}
		if slices.Contains(s.FakeHost.Jobs, "write kubelet.conf") != (i != 1) {
			t.Errorf("step %d: %v", i, s.FakeHost.Jobs)
		}
		fact.In(t, s.Get(t, manager), "--cluster-signing-cert-file="+phasetest.PKIDir+manifests.SignerFile+"\n", "--root-ca-file="+phasetest.PKIDir+"ca.crt\n")
		if got := s.Get(t, phasetest.PKIDir+manifests.SignerFile); got != string(certs.EncodeCerts(list[0].Cert)) {
			t.Errorf("it signs with\n%s", got)
		}
		if err := s.Cert(t, phasetest.PKIDir+"apiserver.crt").CheckSignatureFrom(list[0].Cert); err != nil {
			t.Error(err)
		}
	}

	s.PutCA(t, next)
	fact.Error(t, renews(t, s), phasetest.KubeletPEM) // the old CA issued it
	s.Certified(t, "cp-1")
	phasetest.Fatal(t, renews(t, s))
	trusts(t, s, phasetest.KubeletConf, next)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...) // init keeps every file
}

// TestTwoCAsForOne: while ca.crt holds two CAs, a single certificate can be renewed, and its user restarted.
func TestTwoCAsForOne(t *testing.T) {
	s := phasetest.RestartStage(t, bootstrap.Init())
	old, next := twoCAs(t, s)
	s.PutCA(t, old, next)
	s.Graces()
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, Certificates(Options{Name: "scheduler.conf", Restart: true}), step.Options{}))
	trusts(t, s, "/etc/kubernetes/scheduler.conf", old, next)
	if got := s.FakeHost.Did("stop container"); !slices.Contains(got, manifests.SchedulerName) {
		t.Errorf("stopped %v", got)
	}
}

// TestTwoCAsOfANewCluster: init, too, gives the controller manager only the signing CA.
func TestTwoCAsOfANewCluster(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	old, next := twoCAs(t, s)
	s.PutCA(t, old, next)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "control-plane")...)
	fact.In(t, s.Get(t, "/etc/kubernetes/manifests/kube-controller-manager.yaml"), "--cluster-signing-cert-file="+phasetest.PKIDir+manifests.SignerFile+"\n")
	if got := s.Get(t, phasetest.PKIDir+manifests.SignerFile); got != string(certs.EncodeCerts(old.Cert)) {
		t.Errorf("it signs with\n%s", got)
	}
	phasetest.Fatal(t, pki.Renewal{Store: s.PKI()}.CheckTrustNow())
}
