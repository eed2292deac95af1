// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"os"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

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
