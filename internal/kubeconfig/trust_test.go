// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/x509"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// TestTrusting: a renewed file trusts all of the cluster's CAs, and anybody's additions; the cluster's earlier CAs go.
func TestTrusting(t *testing.T) {
	n := newNode("cp-1")
	old, current, next := newCA(t, n).Cert, newCA(t, n).Cert, newCA(t, n).Cert
	key, err := certs.NewKey(n.Cluster.EncryptionAlgorithm)
	if err != nil {
		t.Fatal(err)
	}
	balancer, err := certs.NewCA(certs.Spec{Name: "lb", CommonName: "balancer"}, n, key, now)
	if err != nil {
		t.Fatal(err)
	}
	list := func(c ...*x509.Certificate) []*x509.Certificate { return c }
	for name, tt := range map[string]struct{ have, ca, want []*x509.Certificate }{
		"the same":               {list(current), list(current), list(current)},
		"one more":               {list(current), list(current, next), list(current, next)},
		"replaced":               {list(old), list(current), list(current)},
		"one less":               {list(current, old), list(current), list(current)},
		"another order":          {list(old, current), list(current, old), list(old, current)},
		"beside a balancer's":    {list(balancer, old), list(current), list(current, balancer)},
		"a balancer's alone":     {list(balancer), list(current), list(balancer)},
		"both, beside another's": {list(current, balancer), list(next, current), list(next, current, balancer)},
	} {
		t.Run(name, func(t *testing.T) {
			spec := find(t, n, "admin.conf")
			file, err := BuildWithToken(spec, n, tt.have, config.NewSecret("x"))
			if err != nil {
				t.Fatal(err)
			}
			data, changed, err := TrustCAs(file, tt.ca)
			if err != nil {
				t.Fatal(err)
			}
			got, path, err := CAs(data)
			if err != nil || path != "" || !slices.EqualFunc(got, tt.want, (*x509.Certificate).Equal) {
				t.Errorf("%d CAs in %q, want %d: %v", len(got), path, len(tt.want), err)
			}
			if changed != (string(data) != string(file)) {
				t.Errorf("changed: %t", changed)
			}
		})
	}
}
