// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/renewal"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// certified writes a client certificate as the kubelet of a node does that the cluster's CA has signed one for.
func (s *stage) certified(t *testing.T, node string) {
	t.Helper()
	ca, err := s.pki().CA(certs.CA)
	fatal(t, err)
	leaf := fixture.Signed(t, fixture.Pair{Cert: ca.Cert, Key: ca.Key}, "system:node:"+node, time.Now().Add(time.Hour))
	s.put(t, kubeletPEM, string(certs.EncodeCerts(leaf.Cert)))
}

// putCA puts CAs into ca.crt, the first with its key.
func (s *stage) putCA(t *testing.T, list ...certs.Pair) {
	t.Helper()
	var data []byte
	for _, ca := range list {
		data = append(data, certs.EncodeCerts(ca.Cert)...)
	}
	key, err := certs.EncodeKey(list[0].Key)
	fatal(t, err)
	s.put(t, pkiDir+"ca.crt", string(data))
	s.put(t, pkiDir+"ca.key", string(key))
}

// twoCAs are the CA of the stage's cluster, and another one.
func (s *stage) twoCAs(t *testing.T) (old, next certs.Pair) {
	t.Helper()
	old, err := s.pki().CA(certs.CA)
	fatal(t, err)
	made := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(1000*time.Hour))
	return old, certs.Pair{Cert: made.Cert, Key: made.Key}
}

// renews runs `certs renew all --restart` on a control plane whose etcd is alone.
func (s *stage) renews(t *testing.T) error {
	t.Helper()
	s.host.Runs(time.Time{}, manifests.Components(s.Config)...)
	s.graces()
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	s.host.Jobs = nil
	return Run(t.Context(), s.Env, Renew(RenewOptions{Restart: true}), Options{})
}

// trusted checks which CAs a kubeconfig file trusts.
func (s *stage) trusts(t *testing.T, path string, want ...certs.Pair) {
	t.Helper()
	_, trusted, err := kubeconfig.Server([]byte(s.get(t, path)))
	fatal(t, err)
	for _, ca := range want {
		if len(trusted) != len(want) || !slices.ContainsFunc(trusted, ca.Cert.Equal) {
			t.Errorf("%s trusts %d CAs, want %d", path, len(trusted), len(want))
		}
	}
}

// TestReplacedCA: a CA that the kubelet's certificate isn't from is an error that shows both, before anything is written or
// restarted.
func TestReplacedCA(t *testing.T) {
	s := restartStage(t, Init())
	old, next := s.twoCAs(t)
	s.putCA(t, next)
	err := s.renews(t)
	fact.Error(t, err, kubeletPEM, pkiDir+"ca.crt", hex.EncodeToString(old.Cert.SubjectKeyId[:8]), hex.EncodeToString(next.Cert.SubjectKeyId[:8]))
	if len(s.host.Jobs) > 0 {
		t.Errorf("it did %v", s.host.Jobs)
	}
	fact.NotIn(t, s.said.String(), "Renewed")

	// What an interrupted run, or somebody else, has renewed is not restarted either.
	for _, row := range renewal.Rows() {
		fatal(t, renewal.Renewal{Store: s.pki()}.Renew(row.Name))
	}
	s.host.Jobs = nil
	fact.Error(t, Run(t.Context(), s.Env, restartPhases(), Options{}), kubeletPEM, pkiDir+"ca.crt")
	if len(s.host.Jobs) > 0 {
		t.Errorf("it did %v", s.host.Jobs)
	}

	s.putCA(t, old)
	if err := s.renews(t); err != nil {
		t.Errorf("with the former CA: %v", err)
	}
}

// TestTwoCAs: while a CA is being replaced, everything trusts both, and the first one signs.
func TestTwoCAs(t *testing.T) {
	s := restartStage(t, Init())
	old, next := s.twoCAs(t)
	const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	for i, list := range [][]certs.Pair{{old, next}, {next, old}, {old}} {
		s.putCA(t, list...)
		fatal(t, s.renews(t))
		for _, path := range []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/controller-manager.conf", kubeletConf} {
			s.trusts(t, path, list...)
		}
		if slices.Contains(s.host.Jobs, "write kubelet.conf") != (i != 1) {
			t.Errorf("step %d: %v", i, s.host.Jobs)
		}
		fact.In(t, s.get(t, manager), "--cluster-signing-cert-file="+pkiDir+manifests.SignerFile+"\n", "--root-ca-file="+pkiDir+"ca.crt\n")
		if got := s.get(t, pkiDir+manifests.SignerFile); got != string(certs.EncodeCerts(list[0].Cert)) {
			t.Errorf("it signs with\n%s", got)
		}
		if err := s.cert(t, pkiDir+"apiserver.crt").CheckSignatureFrom(list[0].Cert); err != nil {
			t.Error(err)
		}
	}

	s.putCA(t, next)
	fact.Error(t, s.renews(t), kubeletPEM) // it is still of the old one
	s.certified(t, "cp-1")
	fatal(t, s.renews(t))
	s.trusts(t, kubeletConf, next)
	s.play(t, pick(Init(), "certs", "kubeconfig")...) // each file is one that init keeps
}

// TestTwoCAsForOne: while ca.crt holds two CAs, a single certificate can be renewed, and its user restarted.
func TestTwoCAsForOne(t *testing.T) {
	s := restartStage(t, Init())
	old, next := s.twoCAs(t)
	s.putCA(t, old, next)
	s.graces()
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	fatal(t, Run(t.Context(), s.Env, Renew(RenewOptions{Name: "scheduler.conf", Restart: true}), Options{}))
	s.trusts(t, "/etc/kubernetes/scheduler.conf", old, next)
	if got := s.host.Did("stop container"); !slices.Contains(got, manifests.SchedulerName) {
		t.Errorf("stopped %v", got)
	}
}

// TestSignerInTurn: the kubelet restarts a controller manager whose static Pod changes. So that changes in the restart of the
// components, while this control plane has the Lease, and a renewal without --restart only says what to do.
func TestSignerInTurn(t *testing.T) {
	const manager = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
	s := restartStage(t, Init())
	old, next := s.twoCAs(t)
	s.putCA(t, old, next)
	before := s.get(t, manager)
	fatal(t, Run(t.Context(), s.Env, Renew(RenewOptions{}), Options{}))
	s.saidOnce(t, line{manager, "--cluster-signing-cert-file=" + pkiDir + manifests.SignerFile, "--restart"})
	if s.get(t, manager) != before || s.holder(t) != "" {
		t.Errorf("without --restart, %s was changed: %q", manager, s.host.Orders())
	}

	secondControlPlane(t, s)
	s.holds(t, "cp-2", 0)
	s.Config.Timeouts.UpgradeManifests = 50 * time.Millisecond
	fact.Error(t, s.renews(t), "control plane cp-2")
	if s.get(t, manager) != before {
		t.Errorf("%s was changed while cp-2 has the Lease", manager)
	}

	fatal(t, s.api.EnsureAbsent(t.Context(), turnLease()))
	s.host.Before = func(_ context.Context, order string) error {
		if order == "write "+manager && s.holder(t) != "cp-1" {
			t.Errorf("%s: the Lease has %q", order, s.holder(t))
		}
		return nil
	}
	s.Config.Timeouts.UpgradeManifests = time.Minute
	fatal(t, s.renews(t))
	if after := s.get(t, manager); after == before || s.holder(t) != "" || !slices.Contains(s.host.Did("stop container"), manifests.ControllerManagerName) {
		t.Errorf("the Lease has %q; did %q", s.holder(t), s.host.Orders())
	}
}

// TestTwoCAsOfANewCluster: init, too, gives the controller manager only the CA that signs.
func TestTwoCAsOfANewCluster(t *testing.T) {
	s := controlPlaneStage(t, Init())
	old, next := s.twoCAs(t)
	s.putCA(t, old, next)
	s.play(t, pick(Init(), "control-plane")...)
	fact.In(t, s.get(t, "/etc/kubernetes/manifests/kube-controller-manager.yaml"), "--cluster-signing-cert-file="+pkiDir+manifests.SignerFile+"\n")
	if got := s.get(t, pkiDir+manifests.SignerFile); got != string(certs.EncodeCerts(old.Cert)) {
		t.Errorf("it signs with\n%s", got)
	}
	fatal(t, renewal.Renewal{Store: s.pki()}.CheckTrustNow())
}
