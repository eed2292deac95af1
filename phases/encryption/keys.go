// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

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
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// The sealed keyring is in a Secret, on the way to other control planes, and in a file, for keys that only old snapshots need: a
// restored etcd has the Secret of its time.
const (
	keyringName = "slipway-encryption-keyring"
	keyringKey  = "keyring"
	keyringFile = config.EncryptionKeyring
)

func keyringSecret() *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: keyringName, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeOpaque,
	}
}

// own is this host's EncryptionConfiguration.
type own struct {
	data  []byte // nil without a file
	order encryption.Order
	ring  encryption.Keyring
}

func ownFile(env *step.Env) (o own, err error) {
	if o.data, err = host.ReadIfExists(env.Host, config.EncryptionFile); err != nil || o.data == nil {
		return o, err
	}
	o.order, o.ring, err = encryption.Parse(o.data)
	return o, fault.WithRemedy(errors.WithMessage(err, config.EncryptionFile),
		"Slipway doesn't change a file that somebody has edited: put back the copy it wrote, or continue by hand")
}

// writeOwn writes the file for the API server's user: from its first byte on, so that a killed run leaves no file it can't read. It also
// gives it a file that has another owner.
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
		return nil, fault.New(fmt.Sprintf("%s: other control planes could not tell that this API server has the providers %s: they are too many",
			config.EncryptionFile, strings.Join(order, ", ")),
			"take fewer keys at a time: `slipway encryption enable` (or `disable`) rewrites what needs them, and gives them up again")
	}
	return ring.File(order)
}

// gather returns all keys that are known here: those in the Secret, and those in this host's two files. It makes both keyrings
// complete. Only the Secret says what the target is, unless it's missing.
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
	secret := keyringSecret()
	merge := func() (bool, error) {
		shared := encryption.Keyring{Target: here.Target}
		if sealed := secret.Data[keyringKey]; len(sealed) > 0 {
			if shared, err = encryption.Open(sealed, seal); err != nil {
				return false, fault.WithRemedy(errors.WithMessage(err, "Secret kube-system/"+keyringName),
					"if sa.key was replaced, delete the Secret, and run this on a control plane that has "+config.EncryptionFile)
			}
		}
		if ring, err = shared.With(here.Keys...); err == nil {
			ring, err = change(ring)
		}
		if err != nil || len(secret.Data[keyringKey]) > 0 && ring.Same(shared) {
			return false, err
		}
		sealed, err := ring.Seal(seal)
		secret.Data = map[string][]byte{keyringKey: sealed}
		return true, err
	}
	found, err := env.Cluster.Update(ctx, secret, merge)
	if err == nil && !found {
		secret = keyringSecret()
		if _, err = merge(); err == nil {
			err = env.Cluster.Ensure(ctx, secret)
		}
	}
	if err != nil || ring.Same(here) {
		return ring, err
	}
	return ring, keep(env, ring, seal)
}

// keysHere returns the keys in this host's files. Its target is only a memory.
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
	if err != nil {
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

// decide makes a new key if the goal needs one, sets the target, and gives this host a file that reads everything.
func (r *Run) decide(ctx context.Context, env *step.Env) error {
	turn, err := node.TakeTurn(ctx, env, node.ForEncryption)
	if err != nil {
		return err
	}
	return turn.Finish(ctx, env, r.aim(ctx, env))
}

func (r *Run) aim(ctx context.Context, env *step.Env) error {
	ring, err := gather(ctx, env)
	if err != nil {
		return err
	}
	target, key, err := r.target(ctx, env, ring)
	if err != nil {
		return err
	}
	if target != ring.Target {
		ring, err = update(ctx, env, func(ring encryption.Keyring) (encryption.Keyring, error) {
			ring.Target = target
			return ring.With(key...)
		})
		if err != nil {
			return err
		}
	}
	return r.begin(ctx, env, ring)
}

// target returns the target that the goal asks for, and a new key if it needs one.
func (r *Run) target(ctx context.Context, env *step.Env, ring encryption.Keyring) (string, []encryption.Key, error) {
	on := ring.Target != "" && ring.Target != encryption.Identity
	switch {
	case r.Goal == Disable && ring.Target == "", r.Goal == Rotate && !on:
		return "", nil, fault.New("this cluster's Secrets are not encrypted", "`slipway encryption enable` encrypts them")
	case r.Goal == Disable:
		return encryption.Identity, nil, nil
	case r.Goal == Enable && on:
		return ring.Target, nil, nil
	}
	if r.Goal == Rotate {
		if new, err := r.mayRotate(ctx, env, ring); err != nil || !new {
			return ring.Target, nil, err
		}
	}
	key := ring.NewKey(env.Host.Now())
	return key.Name, []encryption.Key{key}, nil
}

// justNow is how long after a rotation the same command, on whichever node, doesn't begin another.
const justNow = time.Hour

// mayRotate reports whether there's to be a new key, instead of an end to the rotation that has begun.
func (r *Run) mayRotate(ctx context.Context, env *step.Env, ring encryption.Keyring) (bool, error) {
	_, next, err := look(ctx, env, ring, func([]string) {})
	switch {
	case err != nil:
		return false, err
	case next.Do != encryption.Done:
		env.UI.Printf("Going on with the change to %s that has begun", ring.Target)
		return false, nil
	case len(ring.Keys) > 1 && !r.Again && env.Host.Now().Sub(encryption.Made(ring.Target)) < justNow:
		env.UI.Warn("the key was rotated less than an hour ago, so this run doesn't rotate it again", "to do so, use --again")
		return false, nil
	}
	return true, nil
}

// begin writes this host's first file: it encrypts nothing yet, and reads whatever any API server reads.
func (r *Run) begin(ctx context.Context, env *step.Env, ring encryption.Keyring) error {
	o, err := ownFile(env)
	if err != nil {
		return err
	}
	if o.data != nil {
		return writeOwn(env, o.data)
	}
	order := encryption.Order{encryption.Identity}.Reading(ring.Target)
	servers, err := servers(ctx, env, ring)
	if err != nil {
		return err
	}
	for _, s := range servers {
		for _, name := range s.Order {
			order = order.Reading(name)
		}
	}
	data, err := fileFor(ring, order)
	if err != nil {
		return err
	}
	return writeOwn(env, data)
}

// spoilShared takes the file out of Secret kubeadm-certs, so that a control plane that joins asks for another upload.
func spoilShared(ctx context.Context, env *step.Env) error {
	shared := keyringSecret()
	shared.Name = manifests.CertsSecretName
	_, err := env.Cluster.Update(ctx, shared, func() (bool, error) {
		_, there := shared.Data[manifests.SharedEncryption]
		delete(shared.Data, manifests.SharedEncryption)
		return there, nil
	})
	return err
}
