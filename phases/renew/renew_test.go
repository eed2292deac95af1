// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"crypto/tls"
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
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestRenewAll(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	before := map[string]string{}
	for _, row := range pki.RenewableRows() {
		path := s.PKI().Files(row)[0]
		before[path] = s.Get(t, path)
	}
	ca, kubelet := s.Get(t, phasetest.PKIDir+"ca.crt"), s.Get(t, "/etc/kubernetes/kubelet.conf")
	if len(before) != 11 {
		t.Errorf("%d files", len(before))
	}
	later := time.Now().Add(100 * 24 * time.Hour)
	s.FakeHost.Has.Time = later
	s.Play(t, Certificates(Options{})...)
	for path, old := range before {
		if s.Get(t, path) == old {
			t.Errorf("%s did not change", path)
		}
	}
	if s.Get(t, phasetest.PKIDir+"ca.crt") != ca || s.Get(t, "/etc/kubernetes/kubelet.conf") != kubelet {
		t.Error("the CA or kubelet.conf has changed")
	}
	if got := s.Cert(t, phasetest.PKIDir+"apiserver.crt").NotAfter; got.Before(later.Add(364 * 24 * time.Hour)) {
		t.Errorf("apiserver.crt ends at %s", got)
	}
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...) // init keeps every renewed file
	fact.In(t, s.Said.String(), "Restart etcd, kube-apiserver, kube-controller-manager, kube-scheduler to", "~/.kube/config")
}

// TestRenewBesideChange: an unfinished change is in the way, unless it goes back, which may not work with expired certificates. The renewed
// certificate stays then, because it's for another key.
func TestRenewBesideChange(t *testing.T) {
	const serverCert = phasetest.PKIDir + "apiserver.crt"
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	record, err := trial.Begin(t.Context(), s.Env, "/usr/bin/slipway", []trial.Write{{Path: serverCert}}, trial.Record{})
	phasetest.Fatal(t, err)
	fact.Error(t, step.Run(t.Context(), s.Env, Certificates(Options{}), step.Options{}), "unfinished", string(trial.OnTrial))
	phasetest.Fatal(t, record.Set(s.Env, trial.Reverting))
	s.Play(t, Certificates(Options{})...)
	renewed := s.Get(t, serverCert)
	phasetest.Fatal(t, record.RestoreFiles(s.Env))
	if s.Get(t, serverCert) != renewed {
		t.Error("the former certificate is back, without its key")
	}
}

// TestRenewRootless: in a rootless control plane, each new file belongs to its component from its first byte on, even if only the
// static Pods show the gate, because the cluster may be down. Other files aren't touched: another phase may be replacing them.
func TestRenewRootless(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig", "etcd", "control-plane")...)
	ungated := *s.Config
	ungated.Cluster.FeatureGates = nil
	for label, n := range map[string]*config.Node{"known": s.Config, "unknown": &ungated} {
		s.Config = n
		for name, want := range map[string]string{
			"apiserver":                phasetest.PKIDir + "apiserver.key 997:997",
			"etcd-peer":                phasetest.PKIDir + "etcd/peer.key 998:999",
			"scheduler.conf":           "/etc/kubernetes/scheduler.conf 995:995",
			"etcd-healthcheck-client":  "",
			"apiserver-kubelet-client": phasetest.PKIDir + "apiserver-kubelet-client.key 997:997",
		} {
			s.FakeHost.Owned = nil
			s.Play(t, Certificates(Options{Name: name})...)
			if got := strings.Join(s.FakeHost.Owned, ", "); got != want {
				t.Errorf("gate %s: %s: gave away %q, want %q", label, name, got, want)
			}
		}
	}
}

// TestRenewSideBySide: each certificate matches its key, whatever the order of the renewals.
func TestRenewSideBySide(t *testing.T) {
	s := phasetest.RootlessStage(t)
	s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig", "etcd", "control-plane")...)
	for range 10 {
		s.Play(t, Certificates(Options{})...)
		for _, row := range pki.RenewableRows() {
			files := s.PKI().Files(row)
			cert, key := s.Get(t, files[0]), s.Get(t, files[len(files)-1])
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
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		err := step.Run(t.Context(), s.Env, Certificates(Options{Restart: restart}), step.Options{})
		fact.Error(t, err, "no certificate", "/etc/kubernetes/pki", "/etc/kubernetes")
		fact.NotIn(t, s.Said.String(), "[WARNING]", "not exist")
	}
}

// TestRenewAllWithoutCAKey renews as much as it can, and warns about the rest.
func TestRenewAllWithoutCAKey(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	old := s.Get(t, phasetest.PKIDir+"etcd/peer.crt")
	if err := os.Remove(filepath.Join(s.Root, phasetest.PKIDir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	s.Play(t, Certificates(Options{})...)
	if s.Get(t, phasetest.PKIDir+"etcd/peer.crt") == old || !strings.Contains(s.Said.String(), "slipway certs generate-csr") {
		t.Errorf("said:\n%s", s.Said.String())
	}
	text := s.Said.String()
	fact.In(t, text, "Restart etcd, kube-apiserver to")
	fact.NotIn(t, text, "~/.kube/config")
}

func TestRestartJustWhatChanged(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	s.Play(t, phasetest.Pick(bootstrap.Init(), "etcd", "control-plane")...)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	phasetest.Age(t, s.Root)
	s.FakeHost.Runs(time.Now().Add(-time.Minute), manifests.Components(s.Config)...)
	s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	s.Play(t, Certificates(Options{Name: "scheduler.conf"})...)
	for range 2 {
		if err := restartChanged(t.Context(), s.Env); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(s.FakeHost.Did("stop container"), " "); got != "kube-scheduler" {
		t.Errorf("stopped %q", got)
	}
}

// TestRestartAfterTheClockWasSetBack: no container is newer than a file from the future, so such a file says something only about
// containers that are from the future, too.
func TestRestartAfterTheClockWasSetBack(t *testing.T) {
	for name, tt := range map[string]struct {
		created time.Duration // from now
		stopped int
	}{"since then": {-time.Minute, 0}, "before, and older than its files": {time.Hour, 4}, "before, and newer": {3 * time.Hour, 0}} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.ControlPlaneStage(t, bootstrap.Init())
			s.Play(t, phasetest.Pick(bootstrap.Init(), "etcd", "control-plane")...)
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
			s.Etcd = &phasetest.FakeMembers{List: []etcd.Member{{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
			ahead := time.Now().Add(2 * time.Hour)
			for _, row := range pki.RenewableRows() {
				path := filepath.Join(s.Root, s.PKI().Files(row)[0])
				phasetest.Fatal(t, os.Chtimes(path, ahead, ahead))
			}
			s.FakeHost.Runs(time.Now().Add(tt.created), manifests.Components(s.Config)...)
			s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, _ time.Duration) error {
				s.FakeHost.Runs(time.Now(), id)
				return nil
			}
			for range 2 {
				phasetest.Fatal(t, restartChanged(t.Context(), s.Env))
			}
			if got := s.FakeHost.Did("stop container"); len(got) != tt.stopped {
				t.Errorf("stopped %q", got)
			}
		})
	}
}

func TestMendKubelet(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	before := s.Get(t, "/etc/kubernetes/kubelet.conf")
	if err := repairKubelet(t.Context(), s.Env); err != nil || s.Get(t, "/etc/kubernetes/kubelet.conf") != before {
		t.Fatalf("a kubelet.conf that is valid has changed: %v", err)
	}
	s.FakeHost.Has.Time = time.Now().Add(2 * 365 * 24 * time.Hour)
	s.Put(t, phasetest.KubeletPEM, "old")
	if err := repairKubelet(t.Context(), s.Env); err != nil {
		t.Fatal(err)
	}
	data, _, err := kubeconfig.ClientCertificate([]byte(s.Get(t, "/etc/kubernetes/kubelet.conf")))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certs.FirstCert(data)
	if err != nil || cert.Subject.CommonName != "system:node:cp-1" || cert.NotAfter.Before(s.FakeHost.Has.Time) {
		t.Errorf("%v %v", cert.Subject, err)
	}
	if _, err := os.Stat(filepath.Join(s.Root, phasetest.KubeletPEM)); err == nil {
		t.Error("the expired certificate is still there")
	}
	if got := s.FakeHost.Jobs[len(s.FakeHost.Jobs)-1]; got != "restart kubelet.service" {
		t.Errorf("last job: %s", got)
	}
}

// TestMendKubeletIsCutOff: the next run picks up where the first stopped, and doesn't take the expired certificate for the new.
func TestMendKubeletIsCutOff(t *testing.T) {
	const otherPEM = "/other/pki/kubelet-client-current.pem"
	for _, tt := range []struct{ name, documents, at, pem string }{
		{"before the expired certificate is removed", fixture.InitDocument + phasetest.ShortWaits + fixture.ClusterDocument, "remove", phasetest.KubeletPEM},
		{"before the kubelet is restarted", fixture.InitDocument + phasetest.ShortWaits + fixture.ClusterDocument, "restart", phasetest.KubeletPEM},
		{"with another directory", phasetest.WithKubeletFlags("{name: cert-dir, value: /other/pki}"), "remove", otherPEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, tt.documents)
			s.Play(t, phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig")...)
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
			until := time.Now().Add(time.Hour)
			s.Rotated(t, tt.pem, "cp-1", until)
			s.Play(t, phasetest.Pick(bootstrap.Init(), "kubelet-finalize")...)

			started := time.Now().Add(-time.Minute)
			s.FakeHost.Has.Time = until.Add(time.Hour)
			s.FakeHost.On.Unit = func(context.Context, string) (host.UnitState, error) {
				return host.UnitState{LoadState: "loaded", ActiveState: "active", ActiveSince: started}, nil
			}
			s.FakeHost.Before = func(_ context.Context, order string) error {
				if strings.HasPrefix(order, tt.at+" ") {
					return errors.New("cut off")
				}
				return nil
			}
			if err := repairKubelet(t.Context(), s.Env); phasetest.Message(err) != "cut off" {
				t.Fatalf("the first run: %v", err)
			}
			s.FakeHost.Before, s.FakeHost.Jobs = nil, nil
			if err := repairKubelet(t.Context(), s.Env); err != nil || strings.Join(s.FakeHost.Jobs, " ") != "restart kubelet.service" {
				t.Fatalf("the second run: %v, jobs %v", err, s.FakeHost.Jobs)
			}
			if _, err := os.Stat(filepath.Join(s.Root, tt.pem)); err == nil {
				t.Error("the expired certificate is still there")
			}

			started, s.FakeHost.Jobs = time.Now().Add(time.Minute), nil
			s.Rotated(t, tt.pem, "cp-1", s.FakeHost.Has.Time.Add(time.Hour))
			if err := repairKubelet(t.Context(), s.Env); err != nil || len(s.FakeHost.Jobs) > 0 {
				t.Errorf("a third run: %v, jobs %v", err, s.FakeHost.Jobs)
			}
			if err := finishKubelet(t.Context(), s.Env); err != nil || !strings.Contains(s.Get(t, phasetest.KubeletConf), "client-certificate: "+tt.pem) {
				t.Errorf("finishing: %v", err)
			}
		})
	}
}

func TestThisNode(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, bootstrap.Init())
	s.Play(t, phasetest.Pick(bootstrap.Init(), "control-plane")...)
	s.Put(t, "/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n")
	s.EditPod(t, manifests.APIServerName, "failureThreshold: 24", "failureThreshold: 270") // 45 minutes
	got := thisnode.Current(s.FakeHost)
	if limit := got.Timeouts.UpgradeManifests; limit == nil || limit.Duration != 45*time.Minute {
		t.Errorf("components get %v to start", limit)
	}
	if got.NodeRegistration.Name != "cp-1" || got.ControlPlane.LocalAPIEndpoint.AdvertiseAddress != "192.0.2.11" ||
		got.ControlPlane.LocalAPIEndpoint.BindPort != 6443 || got.NodeRegistration.CRISocket != "unix:///run/crio/crio.sock" {
		t.Errorf("%+v", got)
	}
	// The flag takes precedence, as on nodes of kubeadm up to 1.35.
	s.Put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/x.sock\"\n")
	if got := thisnode.Current(s.FakeHost).NodeRegistration.CRISocket; got != "unix:///run/x.sock" {
		t.Errorf("socket %q", got)
	}
	empty, _ := phasetest.NewDirHost(t)
	if got := thisnode.Current(empty); got.NodeRegistration.Name != "" || got.ControlPlane.LocalAPIEndpoint.BindPort != 0 {
		t.Errorf("of an empty host: %+v", got)
	}
}
