// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
)

const (
	someToken    = "abcdef.0123456789abcdef"
	storedConfig = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n"
	storedNode   = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 17\n"
)

// signed makes a certificate by ca, or one that signs itself for a zero ca.
func signed(t *testing.T, ca certs.Pair, name string, until time.Time) certs.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, BasicConstraintsValid: true, IsCA: ca.Cert == nil}
	parent, signer := template, any(key)
	if ca.Cert != nil {
		parent, signer = ca.Cert, any(ca.Key)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certs.Pair{Cert: cert, Key: key}
}

// joinStage is a host that is to join a cluster by a discovery file, and what
// that cluster's API holds.
type joinStage struct {
	*stage
	ca     certs.Pair
	api    *cluster.Plan
	warned []string // by the discovery
}

func newJoinStage(t *testing.T, objs ...cluster.Object) *joinStage {
	t.Helper()
	s := &joinStage{stage: newStage(t, initDocument+clusterDocument), ca: signed(t, certs.Pair{}, "kubernetes", time.Now().Add(time.Hour))}
	s.api = cluster.NewPlan(func(cluster.Action) {}, nil)
	maps := []cluster.Object{storedMap("kubeadm-config", "ClusterConfiguration", storedConfig), storedMap("kubelet-config", "kubelet", storedNode)}
	if err := s.api.Ensure(t.Context(), append(maps, objs...)...); err != nil {
		t.Fatal(err)
	}
	s.put(t, "/discovery.conf", s.kubeconfig(s.ca, ""))
	return s
}

func storedMap(name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Data: map[string]string{key: text}}
}

// kubeconfig is a file of a cluster, with what user says below "user:".
func (s *joinStage) kubeconfig(ca certs.Pair, user string) string {
	text := "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster:\n    server: https://192.0.2.1:6443\n    certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(certs.EncodeCerts(ca.Cert)) + "\n"
	if user != "" {
		text += "contexts: [{name: c, context: {cluster: a, user: u}}]\ncurrent-context: c\nusers:\n- name: u\n  user: {" + user + "}\n"
	}
	return text
}

// discover loads the desired state of the node.
func (s *joinStage) discover(t *testing.T) error {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: "worker-1"}}
	self, _, err := config.LoadJoin(nil, config.Flags{Given: []string{"discovery-file", "tls-bootstrap-token", "node-name", "cri-socket"},
		DiscoveryFile: "/discovery.conf", TLSBootstrapToken: someToken, NodeName: "worker-1", CRISocket: "unix:///run/containerd/containerd.sock"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: s.host, UI: s.UI, Options: opts, Connect: func([]byte) cluster.Cluster { return s.api }}
	n, warnings, err := d.Node(t.Context(), self)
	if s.warned = warnings; err == nil {
		s.Config = n
	}
	return err
}

// bootstrapped does what the kubelet does once its certificate is signed.
func (s *joinStage) bootstrapped(t *testing.T, ca certs.Pair, name string, until time.Time) {
	t.Helper()
	cert := signed(t, ca, "system:node:"+name, until)
	key, err := certs.EncodeKey(cert.Key)
	fatal(t, err)
	s.put(t, "/var/lib/kubelet/pki/kubelet-client-current.pem", string(certs.EncodeCerts(cert.Cert))+string(key))
	s.put(t, "/etc/kubernetes/kubelet.conf", s.kubeconfig(ca, "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem"))
}

func TestJoin(t *testing.T) {
	s := newJoinStage(t)
	s.host.probe = func(context.Context, host.Probe) error { return nil }
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin())
	want := []string{"stop kubelet.service", "write kubeadm-flags.env", "write instance-config.yaml", "write config.yaml",
		"write ca.crt", "write kubelet.crt", "reload", "start kubelet.service"}
	if diff := cmp.Diff(want, s.host.jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	for path, mode := range map[string]fs.FileMode{"/etc/kubernetes/pki/ca.crt": 0o644, "/etc/kubernetes/bootstrap-kubelet.conf": 0o600, "/var/lib/kubelet/config.yaml": 0o600} {
		if info, err := os.Stat(filepath.Join(s.root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	if got := s.get(t, "/etc/kubernetes/pki/ca.crt"); got != string(certs.EncodeCerts(s.ca.Cert)) {
		t.Errorf("ca.crt is\n%s", got)
	}
	if conf := s.get(t, "/etc/kubernetes/bootstrap-kubelet.conf"); !strings.Contains(conf, "token: "+someToken) {
		t.Errorf("bootstrap-kubelet.conf is\n%s", conf)
	}
	if cfg := s.get(t, "/var/lib/kubelet/config.yaml"); !strings.Contains(cfg, "maxPods: 17") || !strings.Contains(cfg, "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock") {
		t.Errorf("config.yaml is\n%s", cfg)
	}

	s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
	s.play(t, kubeletWaitBootstrap())
	if _, err := os.Stat(filepath.Join(s.root, "/etc/kubernetes/bootstrap-kubelet.conf")); err == nil {
		t.Error("bootstrap-kubelet.conf is still there")
	}

	if err := s.api.Ensure(t.Context(), cluster.NewNode("worker-1")); err != nil {
		t.Fatal(err)
	}
	s.host.jobs = []string{"start kubelet.service"}
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.play(t, kubeletStartJoin(), kubeletWaitBootstrap())
	if len(s.host.jobs) != 1 {
		t.Errorf("the second join did %v", s.host.jobs[1:])
	}
	if strings.Contains(s.said.String(), someToken) {
		t.Errorf("the token was said: %s", s.said.String())
	}
}

// TestJoinAfterTheNodeWasDeleted: a kubelet that runs does not register its
// Node again, so it is restarted, and its Node waited for.
func TestJoinAfterTheNodeWasDeleted(t *testing.T) {
	s := newJoinStage(t)
	s.host.probe = func(context.Context, host.Probe) error { return nil }
	s.bootstrapped(t, s.ca, "worker-1", time.Now().Add(time.Hour))
	fatal(t, s.discover(t))
	s.play(t, kubeletStartJoin())
	s.host.jobs = []string{"start kubelet.service"}
	fatal(t, s.discover(t))
	api := &marked{Plan: s.api}
	s.Cluster = api
	s.play(t, kubeletStartJoin(), kubeletWaitBootstrap())
	if diff := cmp.Diff([]string{"start kubelet.service", "restart kubelet.service"}, s.host.jobs); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	if api.name != "worker-1" || api.mark.Labels != nil || !strings.Contains(s.said.String(), "Restarting the kubelet, because its Node was deleted") {
		t.Errorf("waited for %q; said:\n%s", api.name, s.said.String())
	}
	api.err = errors.New("Node worker-1 is not registered")
	if err := runKubeletWaitBootstrap(t.Context(), s.Env); message(err) != "Node worker-1 is not registered" {
		t.Errorf("error %q", message(err))
	}
}

// TestLeftovers: what an earlier join to this cluster left is no fault, what
// is from elsewhere is.
func TestLeftovers(t *testing.T) {
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	tests := []struct {
		name string
		make func(t *testing.T, s *joinStage, other certs.Pair)
		want map[string]string // file: part of the reason
	}{
		{"nothing", func(*testing.T, *joinStage, certs.Pair) {}, map[string]string{}},
		{"ours", func(t *testing.T, s *joinStage, _ certs.Pair) {
			s.bootstrapped(t, s.ca, "worker-1", later)
			s.put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(s.ca.Cert)))
			s.put(t, "/etc/kubernetes/bootstrap-kubelet.conf", s.kubeconfig(s.ca, "token: abc"))
		}, map[string]string{}},
		{"ours, expired", func(t *testing.T, s *joinStage, _ certs.Pair) { s.bootstrapped(t, s.ca, "worker-1", earlier) }, map[string]string{}},
		{"another name", func(t *testing.T, s *joinStage, _ certs.Pair) { s.bootstrapped(t, s.ca, "worker-9", later) },
			map[string]string{"kubelet.conf": `is of node "worker-9", not "worker-1"`}},
		{"another cluster", func(t *testing.T, s *joinStage, other certs.Pair) {
			s.bootstrapped(t, other, "worker-1", later)
			s.put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(other.Cert)))
			s.put(t, "/etc/kubernetes/bootstrap-kubelet.conf", s.kubeconfig(other, "token: abc"))
		}, map[string]string{"kubelet.conf": "another cluster", "ca.crt": "another cluster", "bootstrap-kubelet.conf": "another cluster"}},
		{"garbage", func(t *testing.T, s *joinStage, _ certs.Pair) {
			s.put(t, "/etc/kubernetes/pki/ca.crt", "x")
			s.put(t, "/etc/kubernetes/kubelet.conf", "x")
		}, map[string]string{"kubelet.conf": "kubeconfig", "ca.crt": "PEM"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newJoinStage(t)
			if err := s.discover(t); err != nil {
				t.Fatal(err)
			}
			tt.make(t, s, signed(t, certs.Pair{}, "kubernetes", later))
			for _, l := range leftovers(s.Env) {
				data, err := s.host.ReadFile(l.Path)
				if err != nil {
					continue
				}
				got, want := message(l.Foreign(data)), tt.want[filepath.Base(l.Path)]
				if (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q, want %q", l.Path, got, want)
				}
			}
		})
	}
}

// TestWaitBootstrapGivesUp: a kubelet that cannot run is not waited for.
func TestWaitBootstrapGivesUp(t *testing.T) {
	s := newJoinStage(t)
	if err := s.discover(t); err != nil {
		t.Fatal(err)
	}
	s.host.unit = func() (host.UnitState, error) {
		return host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "exit-code"}, nil
	}
	started := time.Now()
	err := runKubeletWaitBootstrap(t.Context(), s.Env)
	if got := message(err); !strings.Contains(got, "the kubelet has no certificate") || !strings.Contains(got, "unit kubelet.service is failed") {
		t.Errorf("got %q", got)
	}
	if time.Since(started) > 30*time.Second {
		t.Error("it waited")
	}
}
