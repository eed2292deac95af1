// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/renewal"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const pkiDir = "/etc/kubernetes/pki/"

// controlPlaneStage has the certificates and kubeconfig files of a control plane.
func controlPlaneStage(t *testing.T, init []Phase) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.play(t, pick(init, "certs", "kubeconfig")...)
	return s
}

func (s *stage) cert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	cert, err := certs.FirstCert([]byte(s.get(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestRenewAll(t *testing.T) {
	s := controlPlaneStage(t, Init())
	before := map[string]string{}
	for _, row := range renewal.Rows() {
		path := s.pki().Files(row)[0]
		before[path] = s.get(t, path)
	}
	ca, kubelet := s.get(t, pkiDir+"ca.crt"), s.get(t, "/etc/kubernetes/kubelet.conf")
	if len(before) != 11 {
		t.Errorf("%d files", len(before))
	}
	later := time.Now().Add(100 * 24 * time.Hour)
	s.host.Has.Time = later
	s.play(t, Renew(RenewOptions{})...)
	for path, old := range before {
		if s.get(t, path) == old {
			t.Errorf("%s did not change", path)
		}
	}
	if s.get(t, pkiDir+"ca.crt") != ca || s.get(t, "/etc/kubernetes/kubelet.conf") != kubelet {
		t.Error("the CA or kubelet.conf has changed")
	}
	if got := s.cert(t, pkiDir+"apiserver.crt").NotAfter; got.Before(later.Add(364 * 24 * time.Hour)) {
		t.Errorf("apiserver.crt ends at %s", got)
	}
	s.play(t, pick(Init(), "certs", "kubeconfig")...) // each renewed file is one that init keeps
	fact.In(t, s.said.String(), "Restart etcd, kube-apiserver, kube-controller-manager, kube-scheduler to", "~/.kube/config")
}

// TestRenewRootless: in a rootless control plane each new file belongs to its component from its first byte on, even
// if only the static Pods show that the gate is on, because the cluster may be down. Other files are not touched:
// another phase may be replacing them.
func TestRenewRootless(t *testing.T) {
	s := rootlessStage(t)
	s.play(t, pick(Init(), "certs", "kubeconfig", "etcd", "control-plane")...)
	ungated := *s.Config
	ungated.Cluster.FeatureGates = nil
	for label, n := range map[string]*config.Node{"known": s.Config, "unknown": &ungated} {
		s.Config = n
		for name, want := range map[string]string{
			"apiserver":                pkiDir + "apiserver.key 997:997",
			"etcd-peer":                pkiDir + "etcd/peer.key 998:999",
			"scheduler.conf":           "/etc/kubernetes/scheduler.conf 995:995",
			"etcd-healthcheck-client":  "",
			"apiserver-kubelet-client": pkiDir + "apiserver-kubelet-client.key 997:997",
		} {
			s.host.Owned = nil
			s.play(t, Renew(RenewOptions{Name: name})...)
			if got := strings.Join(s.host.Owned, ", "); got != want {
				t.Errorf("gate %s: %s: gave away %q, want %q", label, name, got, want)
			}
		}
	}
}

// TestRenewSideBySide: each certificate matches its key, in whatever order the renewals run.
func TestRenewSideBySide(t *testing.T) {
	s := rootlessStage(t)
	s.play(t, pick(Init(), "certs", "kubeconfig", "etcd", "control-plane")...)
	for range 10 {
		s.play(t, Renew(RenewOptions{})...)
		for _, row := range renewal.Rows() {
			files := s.pki().Files(row)
			cert, key := s.get(t, files[0]), s.get(t, files[len(files)-1])
			if row.Kubeconfig != "" {
				auth := struct {
					Users []struct{ User map[string][]byte }
				}{}
				if err := yaml.Unmarshal([]byte(cert), &auth); err != nil {
					t.Fatal(err)
				}
				user := auth.Users[0].User
				cert, key = string(user["client-certificate-data"]), string(user["client-key-data"])
			}
			if _, err := tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
				t.Fatalf("%s: %v", row.Name, err)
			}
		}
	}
}

func TestRenewAllOfNothing(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
		err := Run(t.Context(), s.Env, Renew(RenewOptions{Restart: restart}), Options{})
		fact.Error(t, err, "no certificate", "/etc/kubernetes/pki", "/etc/kubernetes")
		fact.NotIn(t, s.said.String(), "[WARNING]", "not exist")
	}
}

// TestRenewAllWithoutCAKey renews what it can, and warns about the rest.
func TestRenewAllWithoutCAKey(t *testing.T) {
	s := controlPlaneStage(t, Init())
	old := s.get(t, pkiDir+"etcd/peer.crt")
	if err := os.Remove(filepath.Join(s.root, pkiDir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	s.play(t, Renew(RenewOptions{})...)
	if s.get(t, pkiDir+"etcd/peer.crt") == old || !strings.Contains(s.said.String(), "slipway certs generate-csr") {
		t.Errorf("said:\n%s", s.said.String())
	}
	text := s.said.String()
	fact.In(t, text, "Restart etcd, kube-apiserver to")
	fact.NotIn(t, text, "~/.kube/config")
}

func TestRestartJustWhatChanged(t *testing.T) {
	s := controlPlaneStage(t, Init())
	s.play(t, pick(Init(), "etcd", "control-plane")...)
	s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.host.Runs(time.Now(), manifests.Components(s.Config)...)
	s.Etcd = &members{list: []etcd.Member{{Name: "cp-1", PeerURL: ownPeer}}}
	time.Sleep(20 * time.Millisecond) // more than the clock tick of file times
	s.play(t, Renew(RenewOptions{Name: "scheduler.conf"})...)
	for range 2 {
		if err := restartChanged(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(s.host.Did("stop container"), " "); got != "kube-scheduler" {
		t.Errorf("stopped %q", got)
	}
}

func TestMendKubelet(t *testing.T) {
	s := controlPlaneStage(t, Init())
	before := s.get(t, "/etc/kubernetes/kubelet.conf")
	if err := repairKubelet(t.Context(), s.Env); err != nil || s.get(t, "/etc/kubernetes/kubelet.conf") != before {
		t.Fatalf("a kubelet.conf that is valid has changed: %v", err)
	}
	s.host.Has.Time = time.Now().Add(2 * 365 * 24 * time.Hour)
	s.put(t, kubeletPEM, "old")
	if err := repairKubelet(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	data, _, err := kubeconfig.ClientCertificate([]byte(s.get(t, "/etc/kubernetes/kubelet.conf")))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certs.FirstCert(data)
	if err != nil || cert.Subject.CommonName != "system:node:cp-1" || cert.NotAfter.Before(s.host.Has.Time) {
		t.Errorf("%v %v", cert.Subject, err)
	}
	if _, err := os.Stat(filepath.Join(s.root, kubeletPEM)); err == nil {
		t.Error("the expired certificate is still there")
	}
	if got := s.host.Jobs[len(s.host.Jobs)-1]; got != "restart kubelet.service" {
		t.Errorf("last job: %s", got)
	}
}

// TestMendKubeletIsCutOff: the next run continues wherever the first was interrupted, and does not take the expired
// certificate for the kubelet's new one.
func TestMendKubeletIsCutOff(t *testing.T) {
	const otherPEM = "/other/pki/kubelet-client-current.pem"
	for _, tt := range []struct{ name, documents, at, pem string }{
		{"before the expired certificate is removed", fixture.InitDocument + shortWaits + fixture.ClusterDocument, "remove", kubeletPEM},
		{"before the kubelet is restarted", fixture.InitDocument + shortWaits + fixture.ClusterDocument, "restart", kubeletPEM},
		{"with another directory", withKubeletFlags("{name: cert-dir, value: /other/pki}"), "remove", otherPEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.documents)
			s.play(t, pick(Init(), "certs", "kubeconfig")...)
			s.host.On.Probe = func(context.Context, host.Probe) error { return nil }
			until := time.Now().Add(time.Hour)
			s.rotated(t, tt.pem, "cp-1", until)
			s.play(t, pick(Init(), "kubelet-finalize")...)

			started := time.Now().Add(-time.Minute)
			s.host.Has.Time = until.Add(time.Hour)
			s.host.On.Unit = func(context.Context, string) (host.UnitState, error) {
				return host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: started}, nil
			}
			s.host.Before = func(_ context.Context, order string) error {
				if strings.HasPrefix(order, tt.at+" ") {
					return errors.New("cut off")
				}
				return nil
			}
			if err := repairKubelet(t.Context(), s.Env); message(err) != "cut off" {
				t.Fatalf("the first run: %v", err)
			}
			s.host.Before, s.host.Jobs = nil, nil
			if err := repairKubelet(t.Context(), s.Env); err != nil || strings.Join(s.host.Jobs, " ") != "restart kubelet.service" {
				t.Fatalf("the second run: %v, jobs %v", err, s.host.Jobs)
			}
			if _, err := os.Stat(filepath.Join(s.root, tt.pem)); err == nil {
				t.Error("the expired certificate is still there")
			}

			started, s.host.Jobs = time.Now().Add(time.Minute), nil
			s.rotated(t, tt.pem, "cp-1", s.host.Has.Time.Add(time.Hour))
			if err := repairKubelet(t.Context(), s.Env); err != nil || len(s.host.Jobs) > 0 {
				t.Errorf("a third run: %v, jobs %v", err, s.host.Jobs)
			}
			if err := finishKubelet(t.Context(), s.Env); err != nil || !strings.Contains(s.get(t, kubeletConf), "client-certificate: "+tt.pem) {
				t.Errorf("finishing: %v", err)
			}
		})
	}
}

func TestThisNode(t *testing.T) {
	s := controlPlaneStage(t, Init())
	s.play(t, pick(Init(), "control-plane")...)
	s.put(t, "/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n")
	got := thisnode.Current(s.host)
	if got.NodeRegistration.Name != "cp-1" || got.ControlPlane.LocalAPIEndpoint.AdvertiseAddress != "192.0.2.11" ||
		got.ControlPlane.LocalAPIEndpoint.BindPort != 6443 || got.NodeRegistration.CRISocket != "unix:///run/crio/crio.sock" {
		t.Errorf("%+v", got)
	}
	// The flag takes precedence, as on nodes of kubeadm up to 1.35.
	s.put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/x.sock\"\n")
	if got := thisnode.Current(s.host).NodeRegistration.CRISocket; got != "unix:///run/x.sock" {
		t.Errorf("socket %q", got)
	}
	empty, _ := newDirHost(t)
	if got := thisnode.Current(empty); got.NodeRegistration.Name != "" || got.ControlPlane.LocalAPIEndpoint.BindPort != 0 {
		t.Errorf("of an empty host: %+v", got)
	}
}
