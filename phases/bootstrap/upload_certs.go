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
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
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
				"is kept elsewhere, copy the files to the other nodes yourself and leave out --upload-certs (in `token create`, --control-plane)")
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

// CheckCluster fails unless the API server accepts clients with certificates from this host's CA. A user's kubeconfig may lead to
// another cluster, which mustn't get this host's keys.
func CheckCluster(ctx context.Context, env *step.Env) error {
	const remedy = "name this node's kubeconfig: `--kubeconfig /etc/kubernetes/admin.conf`"
	path := filepath.Join(env.Config.Paths.PKI, "ca.crt")
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return errors.Wrap(err, "cannot read this cluster's CA")
	}
	own, err := certs.ParseCerts(data)
	if err != nil {
		return errors.Wrap(err, path)
	}
	const name, key = "extension-apiserver-authentication", "client-ca-file"
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, name, key)
	if err != nil {
		return err
	}
	accepted, err := certs.ParseCerts([]byte(text))
	if err != nil {
		return fault.WithRemedy(errors.Wrapf(err, "cannot tell whether the kubeconfig leads to this node's cluster: ConfigMap kube-system/%s, %s", name, key), remedy)
	}
	for _, ca := range accepted {
		if slices.ContainsFunc(own, ca.Equal) {
			return nil
		}
	}
	return fault.New("the kubeconfig leads to another cluster than this node's: its API server does not accept certificates from "+path+
		", so it does not get this node's keys", remedy)
}

// uploadEncrypted makes the Secret depend on a token that expires after two hours: the controller manager deletes the token, and
// with it the Secret. Files of an earlier upload don't stay: they'd need its key.
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
	if err := env.Keeper().Ensure(ctx, append(manifests.CertsRBAC(), manifests.CertsSecret(encrypted, stored))...); err != nil {
		return err
	}
	live := manifests.CertsSecret(nil, stored)
	_, err = env.Cluster.Update(ctx, live, func() (bool, error) {
		all := len(live.Data)
		maps.DeleteFunc(live.Data, func(key string, _ []byte) bool { return encrypted[key] == nil })
		return len(live.Data) < all, nil
	})
	return err
}

// ownerID is the same for the same certificate key, so a second upload renews the owner instead of adding another.
func ownerID(key config.Secret) string {
	sum := sha256.Sum256([]byte(key.Reveal()))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:6]
}
