// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	servingCert    = "/var/lib/kubelet/pki/kubelet.crt"
	servingKeyFile = "/var/lib/kubelet/pki/kubelet.key"
)

func TestServingPair(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, Start())
	isServingPair(t, s)
	for path, want := range map[string]os.FileMode{servingCert: 0o644, servingKeyFile: 0o600} {
		if info, err := s.Host.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, error %v", path, info, err)
		}
	}
}

func isServingPair(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	pair, err := certs.ParsePair([]byte(s.Get(t, servingCert)), []byte(s.Get(t, servingKeyFile)))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Cert.VerifyHostname("cp-1"); err != nil {
		t.Error(err)
	}
	if err := pair.Cert.CheckSignature(pair.Cert.SignatureAlgorithm, pair.Cert.RawTBSCertificate, pair.Cert.Signature); err != nil {
		t.Error(err)
	}
	if u := pair.Cert.ExtKeyUsage; len(u) != 1 || u[0] != x509.ExtKeyUsageServerAuth || pair.Cert.IsCA {
		t.Errorf("usages %v, CA %v", u, pair.Cert.IsCA)
	}
	now := s.Host.Now()
	if left := pair.Cert.NotAfter.Sub(now).Round(time.Hour); left != 365*24*time.Hour || !pair.Cert.NotBefore.Before(now) {
		t.Errorf("valid from %v to %v", pair.Cert.NotBefore, pair.Cert.NotAfter)
	}
}

func TestServingPairIsTheKubeletsOwnMatter(t *testing.T) {
	const kubelet = "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, documents := range map[string]string{
		"files in its settings":      fixture.InitDocument + fixture.ClusterDocument + kubelet + "tlsCertFile: /etc/tls/k.crt\ntlsPrivateKeyFile: /etc/tls/k.key\n",
		"another directory, by flag": phasetest.WithKubeletFlags("{name: cert-dir, value: /var/lib/k}"),
		"files, by flag":             phasetest.WithKubeletFlags("{name: tls-cert-file, value: /etc/tls/k.crt}"),
		"asks the cluster, by flag":  phasetest.WithKubeletFlags("{name: rotate-server-certificates, value: 'true'}"),
		"drop-ins":                   phasetest.WithKubeletFlags("{name: config-dir, value: /etc/kubelet.d}"),
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, documents)
			s.Play(t, Start())
			if _, err := s.Host.Lstat(filepath.Dir(servingCert)); err == nil {
				t.Error("there is a certificate directory")
			}
		})
	}
}

// TestServingPairAndAdministrators: the flags in administrators' files count, and the one in every unit is no matter.
func TestServingPairAndAdministrators(t *testing.T) {
	for flags, want := range map[string]bool{"--v=2": true, "--tls-cert-file=/etc/tls/k.crt": false, "--rotate-server-certificates": false, "--config=/etc/k.yaml": false} {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		s.Put(t, kubeletconfig.DropInPath, string(kubeletconfig.DropIn("/usr/bin/kubelet")))
		s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS="+flags+"\n")
		s.Play(t, Start())
		if _, err := s.Host.Lstat(servingCert); (err == nil) != want {
			t.Errorf("%s: %v", flags, err)
		}
	}
}

// TestServingPairUntilApproved: a kubelet that asks the cluster serves from the start.
func TestServingPairUntilApproved(t *testing.T) {
	const documents = fixture.InitDocument + fixture.ClusterDocument + "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nserverTLSBootstrap: true\n"
	s := phasetest.NewStage(t, documents)
	s.Play(t, Start())
	pair, err := certs.ParsePair([]byte(s.Get(t, "/var/lib/kubelet/pki/kubelet-server.crt")), []byte(s.Get(t, "/var/lib/kubelet/pki/kubelet-server.key")))
	phasetest.Fatal(t, err)
	if years := pair.Cert.NotAfter.Year() - s.Host.Now().Year(); years < 9 {
		t.Errorf("after %d years, it serves nobody unless somebody has approved a request", years)
	}
	if _, err := s.Host.Lstat(servingCert); err == nil {
		t.Error("there is a pair that the kubelet does not read")
	}
	s = phasetest.NewStage(t, documents)
	s.Put(t, "/var/lib/kubelet/pki/kubelet-server-current.pem", "the cluster's")
	s.Play(t, Start())
	if _, err := s.Host.Lstat("/var/lib/kubelet/pki/kubelet-server.crt"); err == nil {
		t.Error("there is a pair beside the cluster's certificate")
	}
}

func TestServingPairThatIsThere(t *testing.T) {
	key, err := certs.NewKey(certs.KubeletServingAlgorithm)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := certs.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("whole", func(t *testing.T) {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		s.Put(t, servingCert, "the kubelet's own")
		s.Put(t, servingKeyFile, "and its key")
		s.Play(t, Start())
		if s.Get(t, servingCert) != "the kubelet's own" || s.Get(t, servingKeyFile) != "and its key" {
			t.Error("the pair was replaced")
		}
	})
	t.Run("the key of a run that was cut off", func(t *testing.T) {
		s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
		s.Put(t, servingKeyFile, string(keyPEM))
		s.Play(t, Start())
		isServingPair(t, s)
		if s.Get(t, servingKeyFile) != string(keyPEM) {
			t.Error("the key was replaced")
		}
	})
	for name, tt := range map[string]struct {
		path string
		want []string
	}{
		"a certificate without its key": {servingCert, []string{servingCert, "without", "key " + servingKeyFile}},
		"a key that is none":            {servingKeyFile, []string{servingKeyFile, "no certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			s.Put(t, tt.path, "scribble")
			err := runKubeletStart(t.Context(), s.Env)
			fact.Error(t, err, tt.want...)
			if strings.Contains(strings.Join(s.FakeHost.Jobs, " "), "start kubelet") || s.Get(t, tt.path) != "scribble" {
				t.Errorf("it went on: %q", s.FakeHost.Jobs)
			}
		})
	}
}
