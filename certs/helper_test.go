// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto"
	"crypto/x509"
	"sync"
	"testing"
	"time"

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
	key, err := NewKey(algorithm)
	if err != nil {
		panic(err)
	}
	return key
}

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

// issueAll issues every row with the same key.
func issueAll(t *testing.T, n *config.Node, key crypto.Signer) map[string]Pair {
	t.Helper()
	pairs := map[string]Pair{}
	for _, spec := range Specs(n) {
		var cert *x509.Certificate
		var err error
		if spec.IsCA() {
			cert, err = NewCA(spec, n, key, now)
		} else {
			cert, err = Issue(spec, n, pairs[spec.CA], key, now)
		}
		if err != nil {
			t.Fatal(err)
		}
		pairs[spec.Name] = Pair{Cert: cert, Key: key}
	}
	return pairs
}
