// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

func uploadCerts() step.Phase {
	return step.Phase{
		Name:    "upload-certs",
		Summary: "Share the control plane's certificates, encrypted, for two hours",
		Flags:   []string{"certificate-key", "config", "dry-run", "kubeconfig", "skip-certificate-key-print", "upload-certs"},
		Run:     UploadCerts,
		Skip: func(env *step.Env) string {
			if !env.Config.UploadCerts {
				return "--upload-certs is not set"
			}
			return ""
		},
	}
}

// UploadCerts runs the phase; `token create` needs it without the phase. It rewrites Secret kube-system/kubeadm-certs, which
// restarts its two hours, as the flag asks.
func UploadCerts(ctx context.Context, env *step.Env) error {
	files, shared := map[string][]byte{}, manifests.SharedFiles(env.Config)
	for _, key := range slices.Sorted(maps.Keys(shared)) {
		data, err := env.Host.ReadFile(shared[key])
		if errors.Is(err, fs.ErrNotExist) {
			return errors.Wrap(err, "a file to share with other control planes is missing; if the key of a CA "+
				"is kept elsewhere, copy the files to the other nodes yourself and leave out --upload-certs")
		}
		if err != nil {
			return errors.Wrap(err, "cannot read a file to share with other control planes")
		}
		files[key] = data
	}
	encrypted, err := manifests.EncryptCerts(files, env.Config.CertificateKey, rand.Reader)
	if err != nil {
		return err
	}
	env.UI.Printf("Sharing the control plane's certificates in Secret kube-system/kubeadm-certs")
	if err := uploadEncrypted(ctx, env, encrypted); err != nil {
		return err
	}
	if !env.Config.SkipCertificateKeyPrint {
		env.UI.Nextf("Control planes download and decrypt these certificates with this certificate key:")
		env.UI.Result(env.Config.CertificateKey.Reveal())
		env.UI.Outcome(ui.Outcome{CertificateKey: env.Config.CertificateKey})
	}
	return nil
}

// uploadEncrypted makes the Secret depend on a token that expires after two hours: the controller manager deletes the token, and
// with it the Secret.
func uploadEncrypted(ctx context.Context, env *step.Env, encrypted map[string][]byte) error {
	_, secret := config.NewToken()
	owner := manifests.BootstrapTokenSecret(
		manifests.CertsOwner(ownerID(env.Config.CertificateKey), config.NewSecret(secret)), env.Host.Now())
	if err := env.Keeper().Ensure(ctx, owner); err != nil {
		return err
	}
	stored := owner.DeepCopy()
	found, err := env.Cluster.Get(ctx, stored)
	if err != nil {
		return err
	}
	if !found {
		return errors.Errorf("Secret kube-system/%s was deleted right after it was written; find out what deletes it, and run the phase again", owner.Name)
	}
	return env.Keeper().Ensure(ctx, append(manifests.CertsRBAC(), manifests.CertsSecret(encrypted, stored))...)
}

// ownerID is the same for the same certificate key, so a second upload renews the owner instead of adding another.
func ownerID(key config.Secret) string {
	sum := sha256.Sum256([]byte(key.Reveal()))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:6]
}
