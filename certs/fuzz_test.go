// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// FuzzParsePair: no content causes a panic, no error quotes the key, and accepted content survives writing and reading.
func FuzzParsePair(f *testing.F) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	pairs := map[string]Pair{}
	for _, algorithm := range []config.EncryptionAlgorithm{config.ECDSAP256, config.ECDSAP384, config.RSA2048} {
		key := mustKey(algorithm)
		ca, err := NewCA(Specs(n)[0], n, key, now)
		if err != nil {
			f.Fatal(err)
		}
		pairs[string(algorithm)] = Pair{Cert: ca, Key: key}
		f.Add(EncodeCerts(ca), encodeKey(f, key))
	}
	ca := pairs[string(config.ECDSAP256)]
	cert, key := EncodeCerts(ca.Cert), encodeKey(f, ca.Key)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Concat(cert, cert), []byte(nil))
	f.Add(slices.Concat(cert, key), slices.Concat(key, key))
	f.Add(cert[:len(cert)-40], key[:len(key)/2])
	f.Add(cert, encodeKey(f, ed))
	f.Add([]byte{}, []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		started := time.Now()
		pair, err := ParsePair(cert, key)
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		if err != nil {
			keepsToItself(t, key, err)
			return
		}
		for _, spec := range Specs(n) {
			keepsToItself(t, key, Check(spec, n, pair, []*x509.Certificate{ca.Cert, pair.Cert}, now))
		}
		bundle := pair.Bundle()
		again, err := ParseCerts(EncodeCerts(bundle...))
		if err != nil || !slices.EqualFunc(bundle, again, (*x509.Certificate).Equal) {
			t.Errorf("%d certificates come back as %d (%v)", len(bundle), len(again), err)
		}
		if pair.Key == nil {
			return
		}
		encoded := encodeKey(t, pair.Key)
		same, err := ParseKey(encoded)
		if err != nil || !SameKey(same.Public(), pair.Key.Public()) || !bytes.Equal(encoded, encodeKey(t, same)) {
			t.Errorf("the key comes back as another: %v", err)
		}
		public, err := EncodePublicKey(pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		keepsToItself(t, key, CheckServiceAccountPair(key, public))
	})
}

// keepsToItself fails if an error quotes a line of a key file, encoded or decoded.
func keepsToItself(t *testing.T, key []byte, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for line := range strings.Lines(string(key)) {
		line = strings.TrimSpace(line)
		if len(line) < 32 || strings.HasPrefix(line, "-----") {
			continue
		}
		raw, decodeErr := base64.StdEncoding.DecodeString(line)
		if strings.Contains(err.Error(), line) || decodeErr == nil && len(raw) > 0 && strings.Contains(err.Error(), string(raw)) {
			t.Errorf("%v holds a line of the key", err)
		}
	}
}
