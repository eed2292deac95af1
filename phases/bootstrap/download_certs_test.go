// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
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
	fact.Error(t, err, config.EncryptionFile, "`init phase upload-certs --upload-certs`")
	if _, err := os.Stat(s.Root + phasetest.APIServerManifest); err == nil {
		t.Error("the static Pod of the API server was written")
	}
}
