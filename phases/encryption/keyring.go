// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// The sealed keyring is in a Secret, on the way to other control planes, and in a file, for keys that only old snapshots need: a
// restored etcd has the Secret of its time.
const keyringFile = config.EncryptionKeyring

func keyringSecret() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: encryption.KeyringSecret, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeOpaque,
	}
}

// localConfig is this host's EncryptionConfiguration.
type localConfig struct {
	data  []byte // nil without a file
	order encryption.Order
	ring  encryption.Keyring
	// flagged is the file that the API server reads, and unused is set if its static Pod says that it doesn't read this one.
	flagged string
	unused  bool
}

func ownFile(env *step.Env) (o localConfig, err error) {
	pod := apiServer(env)
	o.flagged = manifests.FlagOf(pod, manifests.EncryptionFlag)
	o.unused = pod != nil && o.flagged != config.EncryptionFile
	if o.data, err = host.ReadIfExists(env.Host, config.EncryptionFile); err != nil || o.data == nil {
		return o, err
	}
	o.order, o.ring, err = encryption.Parse(o.data)
	return o, fault.WithRemedy(errors.WithMessage(err, config.EncryptionFile),
		"Slipway doesn't change a file that somebody has edited: put back the copy it wrote, or continue by hand")
}

// refuseLeftover refuses a file that this API server doesn't read, and whose keys nobody else has: `kubeadm reset` leaves an earlier
// cluster's. The API server would write Secrets with a key that no other knows.
func (o localConfig) refuseLeftover(ring encryption.Keyring) error {
	if !o.unused || ring.HasAll(o.ring.Keys) {
		return nil
	}
	return fault.New(config.EncryptionFile+" has keys that this cluster does not know, and this host's API server does not read it: it is probably an earlier cluster's",
		"move it away (`mv "+config.EncryptionFile+" "+config.EncryptionFile+".earlier`), and run the same command again; keep it, because that cluster's snapshots may need its keys")
}

// writeOwn writes the file for the API server's user: from its first byte on, so that a killed run leaves no file it can't read.
// It also gives it a file that has another owner.
func writeOwn(env *step.Env, data []byte) error {
	if err := env.Host.EnsureDir(config.EncryptionDir, 0o755); err != nil {
		return err
	}
	owner, err := reader(env)
	if err == nil {
		_, err = env.Host.WriteOwned(config.EncryptionFile, data, 0o600, owner)
	}
	return err
}

// reader returns the API server's user, by its static Pod; without that, the owner of the file that's there.
func reader(env *step.Env) (host.Owner, error) {
	if pod := apiServer(env); pod != nil {
		security := ptr.Deref(pod.Spec.SecurityContext, corev1.PodSecurityContext{})
		return host.Owner{UID: int(ptr.Deref(security.RunAsUser, 0)), GID: int(ptr.Deref(security.RunAsGroup, 0))}, nil
	}
	info, err := env.Host.Lstat(config.EncryptionFile)
	if err != nil {
		return host.Owner{}, host.IgnoreMissing(err)
	}
	owner, _ := host.OwnerIn(info)
	return owner, nil
}

// fileFor refuses a file that other control planes couldn't tell by its hash: no step could be taken any more.
func fileFor(ring encryption.Keyring, order encryption.Order) ([]byte, error) {
	if !ring.Findable(order) {
		return nil, fault.New(fmt.Sprintf("%s: with so many providers (%s), other control planes could not tell what this API server has loaded",
			config.EncryptionFile, strings.Join(order, ", ")),
			"take fewer keys at a time: `slipway encryption enable` (or `disable`) rewrites what needs them, and gives them up again")
	}
	return ring.File(order)
}

// gather returns all keys known here: those in the Secret, and those in this host's two files. It makes both keyrings
// complete. The Secret says what the target is, unless it's missing, or older than this host's memory.
func gather(ctx context.Context, env *step.Env) (encryption.Keyring, error) {
	return update(ctx, env, func(r encryption.Keyring) (encryption.Keyring, error) { return r, nil })
}

// update changes the keyring.
func update(ctx context.Context, env *step.Env, change func(encryption.Keyring) (encryption.Keyring, error)) (ring encryption.Keyring, err error) {
	seal, err := env.Host.ReadFile(filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	if err != nil {
		return ring, errors.WithMessage(err, "the key that seals encryption keys")
	}
	here, err := keysHere(env, seal)
	if err != nil {
		return ring, err
	}
	secret, restored := keyringSecret(), false
	merge := func() (bool, error) {
		shared, err := open(secret, seal, here.Target)
		if err != nil {
			return false, err
		}
		if ring, restored, err = merged(shared, here); err == nil {
			ring, err = change(ring)
		}
		if err != nil || len(secret.Data[encryption.KeyringKey]) > 0 && ring.Same(shared) {
			return false, err
		}
		sealed, err := ring.Seal(seal)
		secret.Data = map[string][]byte{encryption.KeyringKey: sealed}
		return true, err
	}
	found, err := env.Cluster.Update(ctx, secret, merge)
	if err == nil && !found {
		secret = keyringSecret()
		if _, err = merge(); err == nil {
			err = env.Cluster.Ensure(ctx, secret)
		}
	}
	if err == nil && restored {
		reportRestored(env, here.Target)
	}
	if err == nil && !ring.Same(here) {
		err = keep(env, ring, seal)
	}
	return ring, err
}

func reportRestored(env *step.Env, target string) {
	env.UI.Warn(fmt.Sprintf("Secret kube-system/%s is older than %s, as after a restore of etcd: %s stays the target", encryption.KeyringSecret, keyringFile, target),
		"if Secrets should have another key, use `slipway encryption rotate`")
}

// open reads the Secret's keyring. Without one, it has only a target.
func open(secret *corev1.Secret, seal []byte, target string) (encryption.Keyring, error) {
	sealed := secret.Data[encryption.KeyringKey]
	if len(sealed) == 0 {
		return encryption.Keyring{Target: target}, nil
	}
	ring, err := encryption.Open(sealed, seal)
	return ring, fault.WithRemedy(errors.WithMessage(err, "Secret kube-system/"+encryption.KeyringSecret),
		"if sa.key was replaced, delete the Secret, and run this on a control plane that has "+config.EncryptionFile)
}

// merged adds this host's keys to the shared ones. restored is set if the target is this host's, too.
func merged(shared, here encryption.Keyring) (ring encryption.Keyring, restored bool, err error) {
	ring, err = shared.With(here.Keys...)
	target, restored := shared.TargetBeforeRestore(here)
	if restored {
		ring.Target = target
	}
	return ring, restored, err
}

// keysHere returns the keys in this host's files, but not those of a file that the API server doesn't read. Its target is only a memory.
func keysHere(env *step.Env, seal []byte) (ring encryption.Keyring, err error) {
	sealed, err := host.ReadIfExists(env.Host, keyringFile)
	if err != nil {
		return ring, err
	}
	if sealed != nil {
		if ring, err = encryption.Open(sealed, seal); err != nil {
			return ring, fault.WithRemedy(errors.WithMessage(err, keyringFile),
				"if sa.key was replaced, put the earlier one in its place once more, or move the file away: it has the keys of old snapshots")
		}
	}
	o, err := ownFile(env)
	if err != nil || o.unused { // a run that writes the file puts its keys into the keyring first
		return ring, err
	}
	return ring.With(o.ring.Keys...)
}

func keep(env *step.Env, ring encryption.Keyring, seal []byte) error {
	sealed, err := ring.Seal(seal)
	if err != nil {
		return err
	}
	if err := env.Host.EnsureDir(config.EncryptionDir, 0o755); err != nil {
		return err
	}
	_, err = env.Host.WriteSecret(keyringFile, sealed)
	return err
}

// dropSharedKeys takes the file out of Secret kubeadm-certs, so a joining control plane asks for another upload.
func dropSharedKeys(ctx context.Context, env *step.Env) error {
	shared := keyringSecret()
	shared.Name = manifests.CertsSecretName
	_, err := env.Cluster.Update(ctx, shared, func() (bool, error) {
		_, there := shared.Data[manifests.SharedEncryption]
		delete(shared.Data, manifests.SharedEncryption)
		return there, nil
	})
	return err
}
