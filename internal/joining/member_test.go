// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestMemberNeedsNoToken: a node that's already in the cluster is recognized by its own credentials. Otherwise discovery is used,
// which fails in this test.
func TestMemberNeedsNoToken(t *testing.T) {
	later := time.Now().Add(time.Hour)
	joined := func(t *testing.T, s *stage) { s.bootstrapped(t, s.ca, later) }
	unpinned := func(endpoint string) func(*config.JoinFlags) {
		return func(f *config.JoinFlags) {
			f.Given = []string{"token", "node-name", "cri-socket", "discovery-token-unsafe-skip-ca-verification"}
			f.SkipCAVerification, f.CACertHashes, f.Endpoint = true, nil, endpoint
		}
	}
	asControlPlane := func(f *config.JoinFlags) {
		f.Given = append(f.Given, "control-plane", "apiserver-advertise-address")
		f.ControlPlane, f.APIServerAdvertiseAddress = true, "192.0.2.12"
	}
	tests := []struct {
		name   string
		before func(t *testing.T, s *stage)
		change func(*config.JoinFlags)
		member bool
	}{
		{"member", joined, nil, true},
		{"fresh host", func(*testing.T, *stage) {}, nil, false},
		{"another name", joined, func(f *config.JoinFlags) { f.NodeName = "worker-2" }, false},
		{"another cluster", func(t *testing.T, s *stage) {
			s.bootstrapped(t, fixture.Signed(t, fixture.Pair{}, "kubernetes", later), later)
		}, nil, false},
		{"another pin", joined, func(f *config.JoinFlags) { f.CACertHashes = []string{"sha256:" + strings.Repeat("0", 64)} }, false},
		{"expired", func(t *testing.T, s *stage) { s.bootstrapped(t, s.ca, time.Now().Add(-time.Minute)) }, nil, false},
		{"garbage", func(t *testing.T, s *stage) { s.put(t, "/etc/kubernetes/kubelet.conf", "x") }, nil, false},
		{"no pin, the same address", joined, unpinned("192.0.2.1:6443"), true},
		{"no pin, another address", joined, unpinned("127.0.0.1:1"), false},
		{"control plane without certificates", joined, asControlPlane, false},
		{"control plane", func(t *testing.T, s *stage) {
			joined(t, s)
			s.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
			shared := fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+"controlPlaneEndpoint: 192.0.2.1:6443\n")
			if err := s.api.Ensure(t.Context(), shared); err != nil {
				t.Fatal(err)
			}
		}, asControlPlane, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			tt.before(t, s)
			n, err := s.join(t, tt.change)
			if said := strings.Contains(s.said.String(), " https://192.0.2.1:6443 "); said != tt.member || (err == nil) != tt.member {
				t.Fatalf("member %v, %v", said, err)
			}
			if tt.member && (n.Join.Server != "https://192.0.2.1:6443" || string(n.Join.CA) != string(certs.EncodeCerts(s.ca.Cert))) {
				t.Errorf("joins %+v", n.Join)
			}
		})
	}
}

// TestMemberKeepsItsCAs: a CA added to ca.crt stays. Another cluster's CA alone wouldn't.
func TestMemberKeepsItsCAs(t *testing.T) {
	s := newStage(t)
	s.bootstrapped(t, s.ca, time.Now().Add(time.Hour))
	other := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour))
	for text, want := range map[string]string{
		string(certs.EncodeCerts(s.ca.Cert, other.Cert)): string(certs.EncodeCerts(s.ca.Cert, other.Cert)),
		string(certs.EncodeCerts(other.Cert)):            string(certs.EncodeCerts(s.ca.Cert)),
	} {
		s.put(t, "/etc/kubernetes/pki/ca.crt", text)
		n, err := s.join(t, nil)
		if err != nil || string(n.Join.CA) != want {
			t.Errorf("%v, wants ca.crt to be\n%s", err, n.Join.CA)
		}
	}
}

// TestMemberByFile: a discovery file is read, but needs no credentials.
func TestMemberByFile(t *testing.T) {
	s := newStage(t)
	withoutToken := func(f *config.JoinFlags) {
		byFile(f)
		f.Given, f.TLSBootstrapToken = []string{"discovery-file", "node-name", "cri-socket"}, ""
	}
	if _, err := s.join(t, withoutToken); !strings.Contains(message(err), "no credentials") {
		t.Errorf("a fresh host: %v", err)
	}
	s.bootstrapped(t, s.ca, time.Now().Add(time.Hour))
	if _, err := s.join(t, withoutToken); err != nil {
		t.Errorf("a member: %v", err)
	}
	s.put(t, "/discovery.conf", fixture.Kubeconfig(fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour)), ""))
	if _, err := s.join(t, withoutToken); !strings.Contains(message(err), "no credentials") {
		t.Errorf("the file of another cluster: %v", err)
	}
}

// tokens answers 403 to a node that reads a Secret, which is for tokens.
type tokens struct {
	cluster.Cluster
	asks []byte // the kubeconfig file
}

func (c tokens) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	_, secret := obj.(*corev1.Secret)
	if _, _, err := kubeconfig.ClientCertificate(c.asks); err == nil && secret {
		return false, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, obj.GetName(), errors.New("no relationship"))
	}
	return c.Cluster.Get(ctx, obj)
}

// TestMemberDownloadsWithItsToken: a control plane that has lost a shared file may download it with a token, not as a node.
func TestMemberDownloadsWithItsToken(t *testing.T) {
	s := newStage(t, fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+"controlPlaneEndpoint: 192.0.2.1:6443\n"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-certs"}, Data: map[string][]byte{"front-proxy-ca.key": []byte("x")}})
	s.bootstrapped(t, s.ca, time.Now().Add(time.Hour))
	s.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
	s.connect = func(asks []byte) cluster.Cluster { return tokens{s.api, asks} }
	n, err := s.join(t, func(f *config.JoinFlags) {
		f.Given = append(f.Given, "control-plane", "apiserver-advertise-address", "certificate-key")
		f.ControlPlane, f.APIServerAdvertiseAddress, f.CertificateKey = true, "192.0.2.12", strings.Repeat("ab", 32)
	})
	if err != nil || !n.Join.Rejoins || string(n.Join.Shared["front-proxy-ca.key"]) != "x" {
		t.Errorf("it is not downloaded: %v", err)
	}
}

// TestMemberWhoseServerIsDown asks another API server if this host's own server doesn't work and the other does.
func TestMemberWhoseServerIsDown(t *testing.T) {
	const own, other, elsewhere = "https://192.0.2.11:6443", "https://192.0.2.12:6443", "https://api.example.org:6443"
	down := errors.New("connection refused")
	forbidden := &host.ProbeError{Status: http.StatusUnauthorized}
	failing := &host.ProbeError{Status: http.StatusInternalServerError}
	for _, tt := range []struct {
		name, server string
		ready        map[string]error
		want         string
	}{
		{"it is ready", own, nil, own},
		{"it says nothing to strangers", own, map[string]error{own: forbidden}, own},
		{"it is down", own, map[string]error{own: down}, elsewhere},
		{"its etcd is down", own, map[string]error{own: failing}, elsewhere},
		{"all are down", own, map[string]error{own: down, elsewhere: down}, own},
		{"another host's is down", other, map[string]error{other: down}, other},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.host.On.Probe = func(_ context.Context, p host.Probe) error { return tt.ready[strings.TrimSuffix(p.URL, "/readyz")] }
			d := &Discovery{Host: s.host, UI: s.ui}
			data, err := kubeconfig.AtServer([]byte(fixture.Kubeconfig(s.ca, fixture.Token)), tt.server)
			if err != nil {
				t.Fatal(err)
			}
			join, err := d.reachable(t.Context(), &config.Join{Server: tt.server, Kubeconfig: config.NewSecret(string(data))}, elsewhere)
			if err != nil {
				t.Fatal(err)
			}
			server, _, err := kubeconfig.Server([]byte(join.Kubeconfig.Reveal()))
			if err != nil || join.Server != tt.want || server != tt.want {
				t.Errorf("it asks %s, its kubeconfig %s (%v), want %s", join.Server, server, err, tt.want)
			}
		})
	}
}

// TestMarkedNode: any host knows whether the cluster has a control plane of this name, even a host without a certificate.
func TestMarkedNode(t *testing.T) {
	for _, marked := range []bool{false, true} {
		node := cluster.NewNode("worker-1")
		if marked {
			node.Labels = map[string]string{cluster.LabelControlPlane: ""}
		}
		n, err := newStage(t, node).join(t, byFile)
		if err != nil || n.Join.Marked != marked {
			t.Errorf("marked: %t, %v, want %t", n.Join.Marked, err, marked)
		}
	}
}
