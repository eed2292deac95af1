// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const goldenDir = "../testdata/golden/node"

var (
	// now is an arbitrary fixed time.
	now = time.Date(2026, time.March, 14, 15, 9, 26, 0, time.UTC)

	// Generating RSA keys is slow, so the tests share two.
	rsaKey      = sync.OnceValue(func() crypto.Signer { return mustKey(config.RSA2048) })
	otherRSAKey = sync.OnceValue(func() crypto.Signer { return mustKey(config.RSA2048) })
)

func mustKey(algorithm config.EncryptionAlgorithm) crypto.Signer {
	key, err := NewKey(algorithm, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// goldenNode is the node of a reference case.
func goldenNode(t *testing.T, name string) *config.Node {
	t.Helper()
	path := filepath.Join(goldenDir, name, "input.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: path, Data: data}, config.Flags{}, config.Options{
		Facts: config.HostFacts{Hostname: "vm"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newNode is a node with the static defaults.
func newNode(name, address string) *config.Node {
	return &config.Node{
		ControlPlane:     true,
		Name:             name,
		AdvertiseAddress: netip.MustParseAddr(address),
		BindPort:         6443,
		Cluster: config.ClusterConfiguration{
			ClusterName:                 "kubernetes",
			EncryptionAlgorithm:         config.RSA2048,
			Networking:                  config.Networking{ServiceSubnet: "10.96.0.0/12", DNSDomain: "cluster.local"},
			CertificateValidityPeriod:   &metav1.Duration{Duration: 8760 * time.Hour},
			CACertificateValidityPeriod: &metav1.Duration{Duration: 87600 * time.Hour},
		},
		Paths: config.Paths{PKI: "/etc/kubernetes/pki", Kubeconfigs: "/etc/kubernetes"},
	}
}

// find returns the row of a name.
func find(t *testing.T, n *config.Node, name string) Spec {
	t.Helper()
	for _, spec := range Specs(n) {
		if spec.Name == name {
			return spec
		}
	}
	t.Fatalf("there is no row %q", name)
	return Spec{}
}

// issueAll issues every row, all with the shared key.
func issueAll(t *testing.T, n *config.Node, key crypto.Signer) map[string]Pair {
	t.Helper()
	pairs := map[string]Pair{}
	for _, spec := range Specs(n) {
		var cert *x509.Certificate
		var err error
		if spec.IsCA() {
			cert, err = NewCA(spec, n, key, now, rand.Reader)
		} else {
			cert, err = Issue(spec, n, pairs[spec.CA], key, now, rand.Reader)
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs[spec.Name] = Pair{Cert: cert, Key: key}
	}
	return pairs
}
