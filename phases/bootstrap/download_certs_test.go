// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestJoinExternalCA: a control plane that has every certificate needs none of the CA keys. If a missing certificate would have
// to be signed, the error names it.
func TestJoinExternalCA(t *testing.T) {
	const signed = "(/etc/kubernetes/pki/ca.key, /etc/kubernetes/pki/front-proxy-ca.key, /etc/kubernetes/pki/etcd/ca.key): "
	tests := []struct {
		name, absent, key string
		err               []string
	}{
		{name: "all is here"},
		{name: "no certificate of the API server", absent: "pki/apiserver.crt", err: []string{signed + "/etc/kubernetes/pki/apiserver.crt;"}},
		{name: "no key of etcd", absent: "pki/etcd/peer.key", err: []string{signed + "/etc/kubernetes/pki/etcd/peer.key;"}},
		{name: "no kubeconfig file", absent: "scheduler.conf", err: []string{signed + "/etc/kubernetes/scheduler.conf;"}},
		{name: "much is missing", absent: "pki/apiserver.crt pki/apiserver.key pki/front-proxy-client.crt pki/sa.pub admin.conf pki/etcd/server.crt",
			err: []string{"share: /etc/kubernetes/pki/sa.pub;", "(--certificate-key)", signed + "/etc/kubernetes/pki/apiserver.crt, " +
				"/etc/kubernetes/pki/apiserver.key, /etc/kubernetes/pki/front-proxy-client.crt, /etc/kubernetes/pki/etcd/server.crt, /etc/kubernetes/admin.conf;"}},
		{name: "no CA", absent: "pki/front-proxy-ca.crt", err: []string{"share: /etc/kubernetes/pki/front-proxy-ca.crt, /etc/kubernetes/pki/front-proxy-ca.key;"}},
		{name: "no key of the service accounts", absent: "pki/sa.key", err: []string{"share: /etc/kubernetes/pki/sa.key;"}},
		{name: "an earlier download was cut off", key: phasetest.SomeKey},
	}
	keys := []string{"/etc/kubernetes/pki/ca.key", "/etc/kubernetes/pki/front-proxy-ca.key", "/etc/kubernetes/pki/etcd/ca.key"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := preparedPlane(t)
			gone := keys
			for _, name := range strings.Fields(tt.absent) {
				gone = append(gone[:len(gone):len(gone)], "/etc/kubernetes/"+name)
			}
			for _, path := range gone {
				if err := os.Remove(filepath.Join(s.Root, path)); err != nil {
					t.Fatal(err)
				}
			}
			s.Said.Reset()
			before := s.files(t)
			if err := s.discoverPlane(t, tt.key); err != nil {
				t.Fatal(err)
			}
			err := step.Run(t.Context(), s.Env, joinPlane(), step.Options{})
			fact.Error(t, err, tt.err...)
			if diff := cmp.Diff(before, s.files(t)); tt.err != nil && diff != "" {
				t.Errorf("something was written (-before +after):\n%s", diff)
			}
			warned := phasetest.Line{"[WARNING]", ": " + keys[0]}.Count(t, s.Said.String()) == 1
			for _, path := range keys {
				if _, err := os.Stat(filepath.Join(s.Root, path)); (err == nil) != (tt.key != "") {
					t.Errorf("%s: %v", path, err)
				}
			}
			if warned != (tt.key == "") {
				t.Errorf("said %q", s.Said.String())
			}
		})
	}
}

// encryptedPlane is the StoredPlane of a cluster whose Secrets are encrypted.
const encryptedPlane = phasetest.StoredPlane + `apiServer:
  extraArgs:
  - {name: encryption-provider-config, value: ` + config.EncryptionFile + `}
  - {name: encryption-provider-config-automatic-reload, value: "true"}
  extraVolumes:
  - {name: encryption, hostPath: ` + config.EncryptionDir + `, mountPath: ` + config.EncryptionDir + `, readOnly: true, pathType: DirectoryOrCreate}
`

// TestJoinEncrypted: a control plane gets the keys that Secrets are encrypted with, and doesn't start without them.
func TestJoinEncrypted(t *testing.T) {
	s := newPlaneStage(t, encryptedPlane)
	s.shared[manifests.SharedEncryption] = []byte("the keys\n")
	s.share(t, s.shared)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.Play(t, joinPlane()...)
	info, err := os.Stat(s.Root + config.EncryptionFile)
	if err != nil || info.Mode().Perm() != 0o600 || s.Get(t, config.EncryptionFile) != "the keys\n" {
		t.Errorf("%v, %v", info, err)
	}
	fact.In(t, s.Get(t, phasetest.APIServerManifest), "--encryption-provider-config="+config.EncryptionFile)

	s.Put(t, "/etc/kubernetes/kubelet.conf", startedKubelet)
	s.shared[manifests.SharedEncryption] = []byte("newer keys\n") // after a rotation, and another upload
	s.share(t, s.shared)
	phasetest.Fatal(t, s.discoverPlane(t, phasetest.SomeKey))
	s.Play(t, downloadCerts())
	if got := s.Get(t, config.EncryptionFile); got != "newer keys\n" {
		t.Errorf("the second join has %q", got)
	}
	s.Config = s.Config.With(func(n *config.Node) { n.Join.Shared = nil })
	fact.Error(t, step.Run(t.Context(), s.Env, []step.Phase{downloadCerts()}, step.Options{}), config.EncryptionFile, "kubeadm-certs", "earlier")
	phasetest.Fatal(t, s.discoverPlane(t, phasetest.SomeKey))
	phasetest.Fatal(t, os.Remove(s.Root+config.EncryptionFile))
	s.Put(t, config.EncryptionFile, "an operator's\n")
	fact.Error(t, step.Run(t.Context(), s.Env, []step.Phase{downloadCerts()}, step.Options{}), config.EncryptionFile, "kubeadm-certs")
	if got := s.Get(t, config.EncryptionFile); got != "an operator's\n" {
		t.Errorf("the operator's file is %q", got)
	}

	s = newPlaneStage(t, encryptedPlane) // a new key has taken the file out of the Secret
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	err = step.Run(t.Context(), s.Env, joinPlane(), step.Options{})
	fact.Error(t, err, config.EncryptionFile, "`slipway token create --print-join-command --control-plane`")
	if _, err := os.Stat(s.Root + phasetest.APIServerManifest); err == nil {
		t.Error("the static Pod of the API server was written")
	}
}

// startedKubelet is kubelet.conf as a kubelet writes it when it starts: the file with its certificate doesn't exist yet.
const startedKubelet = `apiVersion: v1
kind: Config
users:
- name: default-auth
  user: {client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem, client-key: /var/lib/kubelet/pki/kubelet-client-current.pem}
`

// TestJoinBesideRotation: a control plane doesn't start with keys that others may have given up since it downloaded them.
func TestJoinBesideRotation(t *testing.T) {
	first := encryption.NewKey(time.Now())
	second := encryption.NewKey(time.Now().Add(time.Hour))
	for name, test := range map[string]struct {
		target   string
		uploaded bool // the file is still in Secret kubeadm-certs
		member   bool // since an earlier run
		refused  bool
	}{
		"no rotation":             {target: first.Name},
		"in a rotation":           {target: second.Name, uploaded: true},
		"rotated since":           {target: second.Name, refused: true},
		"rotated since it joined": {target: second.Name, member: true},
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
				s.Put(t, "/etc/kubernetes/kubelet.conf", startedKubelet) // a kubelet has started
				if test.member && external {
					return // only a kubelet's certificate says so
				}
				if test.member {
					s.etcd.List = append(s.etcd.List, etcd.Member{ID: 9, Cluster: 7, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"})
					s.startedBefore(t, ".")
					s.Put(t, phasetest.EtcdLog, phasetest.LogOf(9, 7, true))
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
				if (err == nil) == test.member || err == nil && (info.Mode() != 0o600 || s.Get(t, config.EncryptionKeyring) != string(sealed)) {
					t.Errorf("the keyring: %v, %v", info, err)
				}
			})
		}
	}
}

// TestJoinWithoutProviders: a file that names no key is none of ours, and no reason to crash.
func TestJoinWithoutProviders(t *testing.T) {
	s := newPlaneStage(t, encryptedPlane)
	file, err := encryption.Keyring{}.File(nil)
	phasetest.Fatal(t, err)
	s.Put(t, config.EncryptionFile, string(file))
	fact.Error(t, checkKeys(t.Context(), s.Env, encryption.Keyring{Target: encryption.Identity}), config.EncryptionFile)
}

// TestJoinBesideLeftovers: files with keys that an earlier cluster has left. Its keyring goes aside, and its file isn't used.
func TestJoinBesideLeftovers(t *testing.T) {
	s := newPlaneStage(t, encryptedPlane)
	s.Put(t, "/etc/kubernetes/pki/sa.key", string(s.shared["sa.key"]))
	ring, err := encryption.Keyring{Target: "slipway-1"}.With(encryption.Key{Name: "slipway-1", Secret: config.NewSecret("one")})
	phasetest.Fatal(t, err)
	sealed, err := ring.Seal(s.shared["sa.key"])
	phasetest.Fatal(t, err)
	s.store(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: encryption.KeyringSecret, Namespace: metav1.NamespaceSystem}, Data: map[string][]byte{encryption.KeyringKey: sealed},
	})
	earlier, err := encryption.Keyring{}.With(encryption.Key{Name: "slipway-0", Secret: config.NewSecret("earlier")})
	phasetest.Fatal(t, err)
	file, err := earlier.File(encryption.Only("slipway-0"))
	phasetest.Fatal(t, err)
	s.Put(t, config.EncryptionFile, string(file))
	s.Put(t, config.EncryptionKeyring, "sealed earlier")
	s.Cluster = s.API
	s.Config = s.Config.With(func(n *config.Node) {
		n.Cluster.APIServer.ExtraArgs, n.Cluster.APIServer.ExtraVolumes = n.Cluster.WithEncryptionFile()
	})
	fact.Error(t, encryptionKeys(t.Context(), s.Env), config.EncryptionFile, config.EncryptionFile+".earlier")
	aside, err := filepath.Glob(s.Root + config.EncryptionKeyring + ".before-join-*")
	if err != nil || len(aside) != 1 || s.Get(t, config.EncryptionKeyring) != string(sealed) || s.Get(t, config.EncryptionFile) != string(file) {
		t.Fatalf("%q, %v", aside, err)
	}
	if data, err := os.ReadFile(aside[0]); err != nil || string(data) != "sealed earlier" {
		t.Errorf("%s: %q, %v", aside[0], data, err)
	}
}
