// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
)

var certificateKey = config.NewSecret(strings.Repeat("5e", 32))

// The test decrypts the data without the package's code.
func TestEncryptCertsFormat(t *testing.T) {
	nonce := []byte("twelve bytes")
	got, err := EncryptCerts(map[string][]byte{"ca.key": []byte("plain")}, certificateKey, bytes.NewReader(nonce))
	if err != nil {
		t.Fatal(err)
	}
	key, err := hex.DecodeString(certificateKey.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(got["ca.key"], nonce) {
		t.Errorf("%x does not begin with the nonce", got["ca.key"])
	}
	plain, err := aead.Open(nil, nonce, got["ca.key"][12:], nil)
	if err != nil || string(plain) != "plain" {
		t.Errorf("%q, %v", plain, err)
	}
}

func TestDecryptCerts(t *testing.T) {
	files := map[string][]byte{"ca.crt": []byte("a"), "ca.key": {}, "sa.pub": bytes.Repeat([]byte("x"), 5000)}
	encrypted, err := EncryptCerts(files, certificateKey, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecryptCerts(encrypted, certificateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if !bytes.Equal(got[name], want) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
	if bytes.Equal(encrypted["ca.crt"][:12], encrypted["sa.pub"][:12]) {
		t.Error("a nonce was used twice")
	}
}

func TestCertsErrors(t *testing.T) {
	encrypted, err := EncryptCerts(map[string][]byte{"ca.key": []byte("plain")}, certificateKey, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	broken := slices.Clone(encrypted["ca.key"])
	broken[len(broken)-1] ^= 1
	decrypt := func(value []byte, key string) error {
		_, err := DecryptCerts(map[string][]byte{"ca.key": value}, config.NewSecret(key))
		return err
	}
	encrypt := func(random io.Reader) error {
		_, err := EncryptCerts(map[string][]byte{"ca.key": nil}, certificateKey, random)
		return err
	}
	const (
		badKey = "certificate key | 32 bytes | 64"
		other  = "ca.key in Secret kube-system/kubeadm-certs | certificate key"
	)
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no key", decrypt(encrypted["ca.key"], ""), badKey},
		{"short key", decrypt(encrypted["ca.key"], "5e5e"), badKey},
		{"no hexadecimal key", decrypt(encrypted["ca.key"], strings.Repeat("zz", 32)), badKey},
		{"another key", decrypt(encrypted["ca.key"], strings.Repeat("5f", 32)), other},
		{"changed", decrypt(broken, certificateKey.Reveal()), other},
		{"short", decrypt(broken[:27], certificateKey.Reveal()), "ca.key in Secret kube-system/kubeadm-certs | short"},
		{"empty", decrypt(nil, certificateKey.Reveal()), "ca.key in Secret kube-system/kubeadm-certs | short"},
		{"no random numbers", encrypt(iotest.ErrReader(errors.New("no entropy"))), "ca.key: | no entropy"},
	} {
		t.Run(tt.name, func(t *testing.T) { fact.Error(t, tt.err, fact.Of(tt.want)...) })
	}
}

func TestCertsSecret(t *testing.T) {
	owner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", UID: "1-2"}}
	got := CertsSecret(map[string][]byte{"ca.crt": {1}}, owner)
	yes := true
	want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "bootstrap-token-abcdef", UID: "1-2", BlockOwnerDeletion: &yes, Controller: &yes}}
	if diff := cmp.Diff(want, got.OwnerReferences); diff != "" {
		t.Error(diff)
	}
}

func TestSharedFiles(t *testing.T) {
	for name, want := range map[string][]string{
		"default":       {"ca.crt", "ca.key", "etcd-ca.crt", "etcd-ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"},
		"external-etcd": {"ca.crt", "ca.key", "external-etcd-ca.crt", "external-etcd.crt", "external-etcd.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"},
	} {
		files := SharedFiles(load(t, read(t, golden, "node", name, "input.yaml")))
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	files := SharedFiles(load(t, read(t, golden, "node/external-etcd/input.yaml")))
	if files["external-etcd.key"] != "/etc/kubernetes/pki/apiserver-etcd-client.key" {
		t.Errorf("%v", files)
	}
}
