// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

const (
	// certsTTL is how long the API keeps the shared certificates.
	certsTTL = 2 * time.Hour

	// CertsSecretName is the name of CertsSecret.
	CertsSecretName = "kubeadm-certs"
	// SharedEncryption is the key of config.EncryptionFile there.
	SharedEncryption = "encryption.yaml"

	certificateKeyLen = 32
)

// SharedFiles maps keys in the Secret kube-system/kubeadm-certs to the paths of the files that all control planes share.
func SharedFiles(n *config.Node) map[string]string {
	pki := func(file string) string { return path.Join(n.Paths.PKI, file) }
	files := map[string]string{
		certs.ServiceAccountKey:       pki(certs.ServiceAccountKey),
		certs.ServiceAccountPublicKey: pki(certs.ServiceAccountPublicKey),
	}
	for _, row := range certs.Specs(n) {
		if row.IsCA() {
			files[row.Name+".crt"], files[row.Name+".key"] = pki(row.CertFile()), pki(row.KeyFile())
		}
	}
	if n.Cluster.HasEncryptionFile() {
		files[SharedEncryption] = config.EncryptionFile
	}
	e := n.Cluster.Etcd.External
	if e == nil {
		return files
	}
	external := map[string]string{
		"external-etcd-ca.crt": e.CAFile, "external-etcd.crt": e.CertFile, "external-etcd.key": e.KeyFile,
	}
	for key, file := range external {
		if file != "" {
			files[key] = file
		}
	}
	return files
}

// CertsOwner returns the token that owns the Secret with the shared certificates. It grants nothing, and only expires, so that
// the Secret is deleted with it. The caller chooses its ID and a random secret.
func CertsOwner(id string, secret config.Secret) config.Token {
	return config.Token{ID: id, Secret: secret, TTL: certsTTL, Description: "Proxy for managing TTL for the kubeadm-certs secret"}
}

// CertsSecret holds the shared certificates, encrypted. owner is CertsOwner's Secret from the API: the garbage collector deletes
// an object whose owner reference has no UID.
func CertsSecret(encrypted map[string][]byte, owner *corev1.Secret) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      CertsSecretName,
			Namespace: metav1.NamespaceSystem,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID,
				BlockOwnerDeletion: ptr.To(true), Controller: ptr.To(true),
			}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: encrypted,
	}
}

// CertsRBAC lets nodes that join with a bootstrap token read CertsSecret.
func CertsRBAC() []Object {
	return readable(metav1.NamespaceSystem, "kubeadm:kubeadm-certs", "secrets", CertsSecretName, group(nodeTokenGroup))
}

// EncryptCerts encrypts each value with AES-256-GCM and the certificate key (32 bytes in hexadecimal): 12 bytes of nonce from
// random, then the ciphertext and its tag.
func EncryptCerts(files map[string][]byte, key config.Secret, random io.Reader) (map[string][]byte, error) {
	aead, err := certsCipher(key)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(files))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		nonce := make([]byte, aead.NonceSize())
		if _, err := io.ReadFull(random, nonce); err != nil {
			return nil, errors.Wrapf(err, "encrypting %s: random numbers", name)
		}
		out[name] = aead.Seal(nonce, nonce, files[name], nil)
	}
	return out, nil
}

// DecryptCerts reverses EncryptCerts. The error names the first value that the key doesn't decrypt.
func DecryptCerts(encrypted map[string][]byte, key config.Secret) (map[string][]byte, error) {
	aead, err := certsCipher(key)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(encrypted))
	for _, name := range slices.Sorted(maps.Keys(encrypted)) {
		data := encrypted[name]
		if len(data) < aead.NonceSize()+aead.Overhead() {
			return nil, errors.Errorf("%s in Secret kube-system/kubeadm-certs is too short to be an encrypted file; upload the certificates again", name)
		}
		nonce, sealed := data[:aead.NonceSize()], data[aead.NonceSize():]
		plain, err := aead.Open(nil, nonce, sealed, nil)
		if err != nil {
			return nil, errors.Errorf("%s in Secret kube-system/kubeadm-certs was not encrypted with this certificate key; use the key that the last upload printed, or upload the certificates again", name)
		}
		out[name] = plain
	}
	return out, nil
}

// certsCipher returns errors that don't contain the key.
func certsCipher(key config.Secret) (cipher.AEAD, error) {
	raw, err := hex.DecodeString(key.Reveal())
	if err != nil || len(raw) != certificateKeyLen {
		return nil, errors.Errorf("the certificate key must be %d bytes, written as %d hexadecimal digits", certificateKeyLen, 2*certificateKeyLen)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
