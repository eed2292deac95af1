// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// FuzzKubeadmCerts: DecryptCerts accepts only values encrypted with the certificate key, and no error contains the key.
func FuzzKubeadmCerts(f *testing.F) {
	files := map[string][]byte{"ca.crt": []byte("a"), "ca.key": {}, "sa.pub": bytes.Repeat([]byte("x"), 5000)}
	// The engine's processes must agree on the seed.
	nonces := bytes.NewReader([]byte("first nonce,second nonce third nonce."))
	sealed, err := EncryptCerts(files, certificateKey, nonces)
	if err != nil {
		f.Fatal(err)
	}
	known := slices.Collect(maps.Values(sealed))
	secret, err := json.Marshal(CertsSecret(sealed, &corev1.Secret{}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(secret, certificateKey.Reveal(), []byte("plain"))
	f.Add([]byte(`{"data":{"ca.key":"`+strings.Repeat("QUJD", 20)+`"}}`), strings.Repeat("5E", 32), []byte{})
	f.Add([]byte(`{"data":{"../../evil":"","ca.crt":null}}`), "5e5e", []byte{0})
	f.Add([]byte(`{"data":[]}`), strings.Repeat("zz", 32), []byte{0})
	f.Fuzz(func(t *testing.T, secret []byte, key string, plain []byte) {
		var read corev1.Secret
		if json.Unmarshal(secret, &read) == nil {
			opened, err := DecryptCerts(read.Data, certificateKey)
			discreet(t, certificateKey.Reveal(), err)
			for name := range opened {
				// Only EncryptCerts has sealed anything with this key.
				if !slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, read.Data[name]) }) {
					t.Errorf("%s is opened", name)
				}
			}
			if err == nil && len(opened) != len(read.Data) {
				t.Errorf("%d of %d are opened", len(opened), len(read.Data))
			}
		}
		made, err := EncryptCerts(map[string][]byte{"ca.key": plain}, config.NewSecret(key), rand.Reader)
		discreet(t, key, err)
		if err != nil {
			return
		}
		opened, err := DecryptCerts(made, config.NewSecret(key))
		if err != nil || !bytes.Equal(opened["ca.key"], plain) {
			t.Errorf("%q comes back as %q, %v", plain, opened["ca.key"], err)
		}
		if len(plain) >= 8 && bytes.Contains(made["ca.key"], plain) {
			t.Error("it is not encrypted")
		}
	})
}

func discreet(t *testing.T, key string, err error) {
	t.Helper()
	if err != nil && len(key) > 12 && strings.Contains(err.Error(), key) {
		t.Errorf("%v holds the key", err)
	}
}
