// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// checkStale fails if an earlier run has downloaded encryption keys that can't be downloaded again: pki.Store.MissingShared says why they
// have to be.
func checkStale(env *step.Env, missing map[string]string) error {
	const key = manifests.SharedEncryption
	if missing[key] == "" || env.Config.Join != nil && len(env.Config.Join.Shared[key]) > 0 {
		return nil
	}
	if here, err := host.Exists(env.Host, missing[key]); err != nil || !here {
		return err
	}
	return fault.New(fmt.Sprintf("an earlier run has downloaded %s, but Secret %s doesn't have it: the keys may have changed since", missing[key], certsSecret),
		uploadAgain)
}

// checkEncryption refuses an operator's file with encryption keys that differs from the uploaded one: an API server that writes with a
// key that others have given up makes Secrets unreadable to them.
func checkEncryption(env *step.Env, missing map[string]string) error {
	const key = manifests.SharedEncryption
	path := manifests.SharedFiles(env.Config)[key]
	if path == "" || missing[key] != "" || env.Config.Join == nil || len(env.Config.Join.Shared[key]) == 0 {
		return nil
	}
	files, err := manifests.DecryptCerts(map[string][]byte{key: env.Config.Join.Shared[key]}, env.Config.CertificateKey)
	if err != nil {
		return err
	}
	here, err := env.Host.ReadFile(path)
	if err == nil && !bytes.Equal(here, files[key]) {
		return fault.New(fmt.Sprintf("%s differs from the file in Secret %s", path, certsSecret), "remove it, so that it's downloaded; keep a copy if it has other keys")
	}
	return err
}

// encryptionKeys refuses encryption keys that the other control planes may have given up since they were downloaded or copied: this
// API server would write Secrets that nobody else can read. From this node's membership of etcd on, a rotation waits for this node,
// so with a local etcd, the check comes after that and before the API server can start. It also keeps the sealed keyring, which has
// the keys of old snapshots.
func encryptionKeys(ctx context.Context, env *step.Env) error {
	if !env.Config.Cluster.HasEncryptionFile() {
		return nil
	}
	sealed, err := sharedValue(ctx, env, encryption.KeyringSecret, encryption.KeyringKey)
	if err != nil || sealed == nil { // somebody encrypts Secrets without Slipway
		return err
	}
	seal, err := env.Host.ReadFile(filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	if err != nil {
		return err
	}
	ring, err := encryption.Open(sealed, seal)
	if err != nil {
		return errors.WithMessage(err, "Secret kube-system/"+encryption.KeyringSecret)
	}
	if err := keepKeyring(env, sealed, seal); err != nil {
		return err
	}
	return checkKeys(ctx, env, ring)
}

// keepKeyring moves an earlier cluster's keyring aside, which `kubeadm reset` leaves: `slipway encryption` couldn't open it.
func keepKeyring(env *step.Env, sealed, seal []byte) error {
	have, err := host.ReadIfExists(env.Host, config.EncryptionKeyring)
	if err != nil {
		return err
	}
	if have != nil {
		if _, err := encryption.Open(have, seal); err == nil { // `slipway encryption` adds the other keys to it
			return nil
		}
		earlier := config.EncryptionKeyring + ".before-join-" + env.Host.Now().UTC().Format(host.FileTime)
		if _, err := env.Host.Rename(config.EncryptionKeyring, earlier); err != nil {
			return err
		}
		env.UI.Printf("Moved %s, which another sa.key sealed, to %s: an earlier cluster's snapshots may need its keys", config.EncryptionKeyring, earlier)
	}
	if err := env.Host.EnsureDir(config.EncryptionDir, 0o755); err != nil {
		return err
	}
	_, err = (ownership.File{Path: config.EncryptionKeyring, Data: sealed, Mode: 0o600, Secret: true}).Write(env.Host)
	return err
}

// checkKeys accepts a file that encrypts with the target, or that's still uploaded: `slipway encryption` takes it out of the Secret
// before each change of the keys.
func checkKeys(ctx context.Context, env *step.Env, ring encryption.Keyring) error {
	data, err := env.Host.ReadFile(config.EncryptionFile)
	if err != nil {
		return err
	}
	order, own, foreign := encryption.Parse(data)
	if foreign == nil && order[0] == ring.Target {
		return nil
	}
	uploaded, err := sharedValue(ctx, env, manifests.CertsSecretName, manifests.SharedEncryption)
	if err != nil || uploaded != nil && env.Config.Join != nil && bytes.Equal(uploaded, env.Config.Join.Shared[manifests.SharedEncryption]) {
		return err
	}
	if foreign == nil && !ring.HasAll(own.Keys) {
		return fault.New(config.EncryptionFile+" has keys that this cluster does not know: it is probably an earlier cluster's",
			"move it away (`mv "+config.EncryptionFile+" "+config.EncryptionFile+".earlier`), but keep it, because that cluster's snapshots may need its keys; then "+uploadAgain)
	}
	return fault.New("the encryption keys in "+config.EncryptionFile+" are not those of the other control planes: a rotation has changed them since",
		"end the rotation (`slipway encryption status` on the other control planes); then "+uploadAgain)
}

// sharedValue returns a value of a Secret in kube-system; nil without one.
func sharedValue(ctx context.Context, env *step.Env, name, key string) ([]byte, error) {
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
	}
	found, err := env.Cluster.Get(ctx, secret)
	if err != nil || !found || len(secret.Data[key]) == 0 {
		return nil, err
	}
	return secret.Data[key], nil
}

// encryptionKeysEarly is encryptionKeys without a local etcd. Until this node has registered, nobody waits for it, so a rotation that
// begins and ends within these seconds goes unnoticed.
func encryptionKeysEarly(ctx context.Context, env *step.Env) error {
	if node.UnlessLocalEtcd(env) == "" || thisnode.HasJoined(env.Host, env.Config) { // later, `slipway encryption` keeps the file current
		return nil
	}
	return encryptionKeys(ctx, env)
}
