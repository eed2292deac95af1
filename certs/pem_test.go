// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func encodeKey(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	data, err := EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParsePair(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	ec := mustKey(config.ECDSAP256)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	cert := EncodeCerts(issueAll(t, n, ec)[CA].Cert)
	other := EncodeCerts(issueAll(t, n, rsaKey())[CA].Cert)
	// OpenSSL writes the parameters of the curve first.
	params := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})

	tests := []struct {
		name      string
		cert, key []byte
		certs     int
		external  bool
	}{
		{"EC", cert, encodeKey(t, ec), 1, false},
		{"RSA", other, encodeKey(t, rsaKey()), 1, false},
		{"Ed25519", cert, encodeKey(t, ed), 1, false},
		{"PKCS #8", cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 1, false},
		{"key with parameters", cert, slices.Concat(params, encodeKey(t, ec)), 1, false},
		{"external", cert, nil, 1, true},
		{"bundle", slices.Concat(cert, other), encodeKey(t, ec), 2, false},
		{"text around", slices.Concat([]byte("Certificate:\n  Data:\n"), cert, []byte("\nbye\n")), nil, 1, true},
		{"CR LF", bytes.ReplaceAll(cert, []byte("\n"), []byte("\r\n")), nil, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pair, err := ParsePair(tt.cert, tt.key)
			if err != nil {
				t.Fatal(err)
			}
			if bundle := pair.Bundle(); len(bundle) != tt.certs || !pair.Cert.Equal(bundle[0]) {
				t.Errorf("%d certificates, not %d", len(bundle), tt.certs)
			}
			if (pair.Key == nil) != tt.external {
				t.Errorf("key is %T", pair.Key)
			}
		})
	}
}

func TestParsePairRefuses(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	key := mustKey(config.ECDSAP256)
	keyPEM := encodeKey(t, key)
	cert := EncodeCerts(issueAll(t, n, key)[CA].Cert)
	block := func(kind string, content string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})
	}
	legacy := pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: []byte("x"),
		Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"},
	})
	tests := []struct {
		name      string
		cert, key []byte
		want      string
	}{
		{"empty certificate", []byte(" \n"), nil, "certificate: | empty"},
		{"garbage", []byte("hunter2"), nil, "certificate: | not in PEM"},
		{"DER", issueAll(t, n, key)[CA].Cert.Raw, nil, "certificate: | not in PEM"},
		{"cut off", cert[:len(cert)-20], nil, "certificate: | PEM | 1 of 1"},
		{"second cut off", slices.Concat(cert, cert[:100]), nil, "PEM | 1 of 2"},
		{"malformed", block("CERTIFICATE", "hunter2"), nil, "certificate: | certificate 1 | malformed"},
		{"key in its place", keyPEM, nil, "also | private key"},
		{"with key", slices.Concat(cert, keyPEM), nil, "also | private key"},
		{"no certificate", block("X509 CRL", "hunter2"), nil, "certificate: | no certificate"},
		{"empty key", cert, []byte{}, "private key: | empty"},
		{"garbled key", cert, []byte("hunter2"), "private key: | not in PEM"},
		{"certificate in its place", cert, cert, "private key: | no private | PEM"},
		{"two keys", cert, slices.Concat(keyPEM, keyPEM), "more than | private key"},
		{"malformed RSA key", cert, block("RSA PRIVATE KEY", "hunter2"), `block "RSA PRIVATE KEY" | damaged`},
		{"malformed EC key", cert, block("EC PRIVATE KEY", "hunter2"), `block "EC PRIVATE KEY" | damaged`},
		{"malformed PKCS #8", cert, block("PRIVATE KEY", "hunter2"), `block "PRIVATE KEY" | damaged`},
		{"encrypted PKCS #8", cert, block("ENCRYPTED PRIVATE KEY", "hunter2"), "key | encrypted"},
		{"encrypted by OpenSSL", cert, legacy, "key | encrypted"},
		{"DSA", cert, block("DSA PRIVATE KEY", "hunter2"), "key | not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParsePair(tt.cert, tt.key)
			if err == nil {
				t.Fatalf("no error, want %q", tt.want)
			}
			fact.Error(t, err, fact.Of(tt.want)...)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
}

func TestCheckServiceAccountPair(t *testing.T) {
	public := func(key crypto.Signer) []byte {
		data, err := EncodePublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := mustKey(config.ECDSAP256)
	tests := []struct {
		name     string
		key, pub []byte
		want     string
	}{
		{"RSA", encodeKey(t, rsaKey()), public(rsaKey()), ""},
		{"EC", encodeKey(t, ec), public(ec), ""},
		{"an earlier key as well", encodeKey(t, ec), slices.Concat(public(rsaKey()), public(ec)), ""},
		{"of another", encodeKey(t, ec), public(rsaKey()), "public key | private key"},
		{"no public key", encodeKey(t, ec), nil, "public key: | empty"},
		{"not public", encodeKey(t, ec), encodeKey(t, ec), "public key: | no public | PEM"},
		{"damaged", encodeKey(t, ec), []byte("-----BEGIN PUBLIC KEY-----\naGk=\n-----END PUBLIC KEY-----\n"),
			"public key: | key 1 | malformed"},
		{"no private key", nil, public(ec), "private key: | empty"},
		{"Ed25519", encodeKey(t, ed), public(ed), "RSA | ECDSA"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckServiceAccountPair(tt.key, tt.pub)
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}
