// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const goldenDir = "../../testdata/golden"

var now = time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)

// newNode returns a node with the static defaults, except for quickly generated keys.
func newNode(name string) *config.Node {
	n := fixture.DefaultNode(name, "192.168.99.11")
	n.Cluster.EncryptionAlgorithm = config.ECDSAP256
	return n
}

// newPair issues a certificate with a new key. Without an issuer, it's the cluster's CA.
func newPair(t *testing.T, spec certs.Spec, n *config.Node, ca certs.Pair) certs.Pair {
	t.Helper()
	key, err := certs.NewKey(n.Cluster.EncryptionAlgorithm)
	if err != nil {
		t.Fatal(err)
	}
	var cert *x509.Certificate
	if ca.Cert == nil {
		cert, err = certs.NewCA(spec, n, key, now)
	} else {
		cert, err = certs.Issue(spec, n, ca, key, now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return certs.Pair{Cert: cert, Key: key}
}

func newCA(t *testing.T, n *config.Node) certs.Pair {
	t.Helper()
	return newPair(t, certs.Specs(n)[0], n, certs.Pair{})
}

// allSpecs returns a control plane node's kubeconfig files.
func allSpecs(n *config.Node) []Spec {
	var list []Spec
	for _, row := range certs.Specs(n) {
		if row.Kubeconfig != "" {
			list = append(list, SpecOf(n, row))
		}
	}
	return list
}

func find(t *testing.T, n *config.Node, name string) Spec {
	t.Helper()
	specs := allSpecs(n)
	at := slices.IndexFunc(specs, func(s Spec) bool { return s.File() == name })
	if at < 0 {
		t.Fatalf("there is no row %q", name)
	}
	return specs[at]
}

func build(t *testing.T, spec Spec, n *config.Node, ca certs.Pair) []byte {
	t.Helper()
	data, err := Build(spec, n, ca.Bundle(), newPair(t, spec.Certificate, n, ca))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// load reads a file with client-go's parser.
func load(t *testing.T, data []byte) (clientcmdapi.Cluster, clientcmdapi.AuthInfo, *clientcmdapi.Config) {
	t.Helper()
	file, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.Validate(*file); err != nil {
		t.Fatal(err)
	}
	context := file.Contexts[file.CurrentContext]
	return *file.Clusters[context.Cluster], *file.AuthInfos[context.AuthInfo], file
}

// TestGolden compares the kubeconfig files with kubeadm's in each reference case.
func TestGolden(t *testing.T) {
	for _, name := range []string{"default", "podcidr", "external-etcd", "dualstack"} {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(goldenDir, "node", name, "kubeconfigs.tsv"))
			if err != nil {
				t.Fatal(err)
			}
			n := fixture.GoldenNode(t, filepath.Join(goldenDir, "node", name, "input.yaml"))
			n.Cluster.EncryptionAlgorithm = config.ECDSAP256 // generated quickly
			ca := newCA(t, n)
			var rows []string
			for _, spec := range allSpecs(n) {
				rows = append(rows, row(t, spec, build(t, spec, n, ca)))
			}
			slices.Sort(rows)
			header, _, _ := strings.Cut(string(want), "\n")
			if diff := cmp.Diff(string(want), header+"\n"+strings.Join(rows, "")); diff != "" {
				t.Errorf("kubeconfig files differ (-kubeadm +ours):\n%s", diff)
			}
		})
	}
}

// row renders a file as a line of kubeconfigs.tsv.
func row(t *testing.T, spec Spec, data []byte) string {
	t.Helper()
	cluster, user, file := load(t, data)
	pair, err := certs.ParsePair(user.ClientCertificateData, user.ClientKeyData)
	if err != nil {
		t.Fatal(err)
	}
	context := file.Contexts[file.CurrentContext]
	return fmt.Sprintf("kubernetes/%s\t%s\t%s\t%s\t%s\t%s\t%s\n", spec.File(), context.Cluster, cluster.Server,
		context.AuthInfo, file.CurrentContext, pair.Cert.Subject.CommonName,
		strings.Join(pair.Cert.Subject.Organization, ","))
}

func TestServers(t *testing.T) {
	tests := []struct {
		name           string
		setup          func(*config.Node)
		cluster, local string
	}{
		{"no endpoint", func(*config.Node) {}, "https://192.168.99.11:6443", "https://192.168.99.11:6443"},
		{"endpoint with port", func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "api.lab.example:443" },
			"https://api.lab.example:443", "https://192.168.99.11:6443"},
		{"endpoint without port", func(n *config.Node) { n.Cluster.ControlPlaneEndpoint, n.BindPort = "api.lab.example", 7000 },
			"https://api.lab.example:7000", "https://192.168.99.11:7000"},
		{"IPv6", func(n *config.Node) {
			n.AdvertiseAddress = netip.MustParseAddr("fd00::11")
			n.Cluster.ControlPlaneEndpoint = "[fd00::99]:7443"
		}, "https://[fd00::99]:7443", "https://[fd00::11]:6443"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode("cp-1")
			tt.setup(n)
			for _, spec := range allSpecs(n) {
				want := tt.local
				if strings.HasSuffix(spec.File(), "admin.conf") {
					want = tt.cluster
				}
				if spec.Server != want {
					t.Errorf("%s: server is %s, not %s", spec.File(), spec.Server, want)
				}
			}
		})
	}
}

// The file has kubeadm's form: the same fields in the same order.
func TestForm(t *testing.T) {
	n := newNode("cp-1")
	n.Cluster.ClusterName = "blue"
	spec := find(t, n, "kubelet.conf")
	lines := strings.Split(string(build(t, spec, n, newCA(t, n))), "\n")
	for i, line := range lines {
		if before, _, found := strings.Cut(line, "-data: "); found {
			lines[i] = before + "-data: X"
		}
	}
	want := `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: X
    server: https://192.168.99.11:6443
  name: blue
contexts:
- context:
    cluster: blue
    user: system:node:cp-1
  name: system:node:cp-1@blue
current-context: system:node:cp-1@blue
kind: Config
users:
- name: system:node:cp-1
  user:
    client-certificate-data: X
    client-key-data: X
`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
}

func TestBundle(t *testing.T) {
	n := newNode("cp-1")
	ca, old := newCA(t, n), newCA(t, n)
	ca.More = []*x509.Certificate{old.Cert}
	cluster, _, _ := load(t, build(t, find(t, n, "admin.conf"), n, ca))
	if diff := cmp.Diff(certs.EncodeCerts(ca.Cert, old.Cert), cluster.CertificateAuthorityData); diff != "" {
		t.Errorf("the file does not hold the bundle:\n%s", diff)
	}
}

func TestBuildWithToken(t *testing.T) {
	n := newNode("cp-1")
	data, err := BuildWithToken(Spec{Certificate: certs.Spec{CommonName: "foo"}, Server: "https://x:6443"}, n, newCA(t, n).Bundle(),
		config.NewSecret("abcdef.0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, user, file := load(t, data)
	if cluster.Server != "https://x:6443" || user.Token != "abcdef.0123456789abcdef" || file.CurrentContext != "foo@kubernetes" {
		t.Errorf("got %s, %s", cluster.Server, file.CurrentContext)
	}
}

// ConfigMap kube-public/cluster-info, byte for byte.
func TestClusterInfo(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join(goldenDir, "cluster", "kube-public_configmap_cluster-info.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Data map[string]string }
	if err := yaml.Unmarshal(golden, &object); err != nil {
		t.Fatal(err)
	}
	ca := newCA(t, newNode("cp-1"))
	got, err := ClusterInfo("https://192.168.99.11:6443", ca.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := clientcmd.Load(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(certs.EncodeCerts(ca.Cert), cluster.Clusters[""].CertificateAuthorityData); diff != "" {
		t.Error(diff)
	}
	lines := strings.Split(string(got), "\n")
	at := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "certificate-authority-data: ") })
	lines[at] = "    certificate-authority-data: <base64 ca.crt>"
	if diff := cmp.Diff(object.Data["kubeconfig"], strings.Join(lines, "\n")); diff != "" {
		t.Errorf("kubeconfig (-kubeadm +ours):\n%s", diff)
	}
}
