// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestJoinBesideRotation: a control plane doesn't start with keys that others may have given up since it downloaded them.
func TestJoinBesideRotation(t *testing.T) {
	first := encryption.NewKey(time.Now())
	second := encryption.NewKey(time.Now().Add(time.Hour))
	for name, test := range map[string]struct {
		target   string
		uploaded bool // the file is still in Secret kubeadm-certs
		joined   bool // by an earlier run
		refused  bool
	}{
		"no rotation":                    {target: first.Name},
		"in a rotation":                  {target: second.Name, uploaded: true},
		"rotated since":                  {target: second.Name, refused: true},
		"rotated since, but it's joined": {target: second.Name, joined: true},
	} {
		for _, stored := range []string{encryptedPlane, encryptedPlane + strings.TrimPrefix(storedExternal, phasetest.StoredPlane)} {
			t.Run(name, func(t *testing.T) {
				s := newPlaneStage(t, stored)
				ring, err := encryption.Keyring{Target: test.target}.With(first, second)
				phasetest.Fatal(t, err)
				file, err := ring.File(encryption.Only(first.Name))
				phasetest.Fatal(t, err)
				shared := s.shared
				external := stored != encryptedPlane
				if external {
					shared = s.sharedExternal(t)
				}
				shared[manifests.SharedEncryption] = file
				s.share(t, shared)
				phasetest.Fatal(t, s.discoverPlane(t, phasetest.SomeKey))
				sealed, err := ring.Seal(s.shared["sa.key"])
				phasetest.Fatal(t, err)
				s.store(t, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: encryption.KeyringSecret, Namespace: metav1.NamespaceSystem}, Data: map[string][]byte{encryption.KeyringKey: sealed},
				})
				if !test.uploaded {
					delete(s.secret.Data, manifests.SharedEncryption)
					s.store(t, s.secret)
				}
				if test.joined {
					s.Put(t, "/etc/kubernetes/kubelet.conf", "apiVersion: v1\n")
				}
				err = step.Run(t.Context(), s.Env, joinPlane(), step.Options{})
				if !test.refused {
					phasetest.Fatal(t, err)
				} else {
					fact.Error(t, err, config.EncryptionFile)
				}
				manifest := "/etc/kubernetes/manifests/etcd.yaml"
				if external {
					manifest = phasetest.APIServerManifest
				}
				if _, err := os.Stat(s.Root + manifest); (err != nil) != test.refused {
					t.Errorf("%s: %v", manifest, err)
				}
				if len(s.etcd.List) != 1 && (test.refused || external) {
					t.Errorf("etcd has %d members", len(s.etcd.List))
				}
				info, err := os.Stat(s.Root + config.EncryptionKeyring)
				if (err == nil) == test.joined || err == nil && (info.Mode() != 0o600 || s.Get(t, config.EncryptionKeyring) != string(sealed)) {
					t.Errorf("the keyring: %v, %v", info, err)
				}
			})
		}
	}
}
