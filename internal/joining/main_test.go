// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	someToken    = "abcdef.0123456789abcdef"
	storedConfig = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n"
	storedNode   = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 17\n"
)

// stage is a host in a directory that is to join, and what its cluster's API holds.
type stage struct {
	host *host.Real
	root string
	ca   certs.Pair
	api  *cluster.Plan
	ui   ui.UI
	said bytes.Buffer
}

func newStage(t *testing.T, objs ...cluster.Object) *stage {
	t.Helper()
	s := &stage{root: t.TempDir(), ca: signed(t, certs.Pair{}, "kubernetes", time.Now().Add(time.Hour))}
	s.host, s.ui, s.api = host.NewAt(s.root), ui.NewLines(&s.said, &s.said), cluster.NewPlan(func(cluster.Action) {}, nil)
	maps := []cluster.Object{storedMap("kubeadm-config", "ClusterConfiguration", storedConfig), storedMap("kubelet-config", "kubelet", storedNode)}
	if err := s.api.Ensure(t.Context(), append(maps, objs...)...); err != nil {
		t.Fatal(err)
	}
	s.put(t, "/discovery.conf", s.kubeconfig(s.ca, ""))
	return s
}

func (s *stage) put(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func storedMap(name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Data: map[string]string{key: text}}
}

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

// kubeconfig is a file of a cluster, with what user says below "user:".
func (s *stage) kubeconfig(ca certs.Pair, user string) string {
	text := "apiVersion: v1\nkind: Config\nclusters:\n- name: a\n  cluster:\n    server: https://192.0.2.1:6443\n    certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(certs.EncodeCerts(ca.Cert)) + "\n"
	if user != "" {
		text += "contexts: [{name: c, context: {cluster: a, user: u}}]\ncurrent-context: c\nusers:\n- name: u\n  user: {" + user + "}\n"
	}
	return text
}

// bootstrapped does what the kubelet of worker-1 does once its certificate is signed.
func (s *stage) bootstrapped(t *testing.T, ca certs.Pair, until time.Time) {
	t.Helper()
	cert := signed(t, ca, "system:node:worker-1", until)
	key, err := certs.EncodeKey(cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "/var/lib/kubelet/pki/kubelet-client-current.pem", string(certs.EncodeCerts(cert.Cert))+string(key))
	s.put(t, "/etc/kubernetes/kubelet.conf", s.kubeconfig(ca, "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem"))
}

// join loads the node from a command line, by token and to an address where nobody answers unless change says otherwise.
func (s *stage) join(t *testing.T, change func(*config.Flags)) (*config.Node, error) {
	t.Helper()
	flags := config.Flags{Given: []string{"token", "node-name", "cri-socket", "discovery-token-ca-cert-hash"}, Endpoint: "127.0.0.1:1",
		Token: someToken, CACertHashes: []string{certs.PublicKeyPin(s.ca.Cert)}, NodeName: "worker-1", CRISocket: "unix:///run/containerd/containerd.sock"}
	if change != nil {
		change(&flags)
	}
	opts := config.Options{Facts: config.HostFacts{Hostname: "worker-1"}}
	self, _, err := config.LoadJoin(nil, flags, opts)
	if err != nil {
		t.Fatal(err)
	}
	self.Timeouts.Discovery.Duration = 50 * time.Millisecond
	d := &Discovery{Host: s.host, UI: s.ui, Options: opts, Connect: func([]byte) cluster.Cluster { return s.api }}
	n, _, err := d.Node(t.Context(), self)
	return n, err
}

// byFile is a command line with a discovery file, which is there.
func byFile(f *config.Flags) {
	*f = config.Flags{Given: []string{"discovery-file", "tls-bootstrap-token", "node-name", "cri-socket"},
		DiscoveryFile: "/discovery.conf", TLSBootstrapToken: someToken, NodeName: f.NodeName, CRISocket: f.CRISocket}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
