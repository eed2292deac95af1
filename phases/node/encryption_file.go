// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EncryptionFileCheck is the check that this control plane has the file with the encryption keys, if the configuration names it.
const EncryptionFileCheck = "EncryptionFile"

// EncryptionFileFindings finds that this control plane hasn't taken part in the encryption yet: its API server wouldn't start, or would
// start with an earlier cluster's keys.
func EncryptionFileFindings(env *step.Env) []fault.Finding {
	if env.Config.Cluster.EncryptedBy() != config.EncryptionFile {
		return nil
	}
	const path = config.EncryptionFile
	data, err := host.ReadIfExists(env.Host, path)
	var f fault.Finding
	switch {
	case errors.Is(err, fs.ErrPermission):
		f = fault.NewFinding(EncryptionFileCheck, fault.Unasked, "run this as root", "%s was not checked: %v", path, err)
	case err != nil:
		f = fault.Of(err)
		f.Name = EncryptionFileCheck
	case data == nil:
		f = fault.NewFinding(EncryptionFileCheck, fault.Error,
			"run `slipway encryption enable` on this control plane, which writes the file, and then this command again",
			"the cluster's API servers read their encryption keys from %s, which is not on this host", path)
	case isLeftover(env, data):
		f = fault.NewFinding(EncryptionFileCheck, fault.Error,
			"run `slipway encryption enable` on this control plane, which replaces the file or says why not, and then this command again",
			"%s may be an earlier cluster's: this host's API server does not read it yet, and did not get it from `slipway encryption enable`", path)
	default:
		return nil
	}
	return []fault.Finding{f}
}

// isLeftover reports whether a file that this API server doesn't read yet is other than `encryption enable` writes it for that: it
// encrypts nothing, and the keyring beside it has its keys. One that Slipway didn't write is an operator's.
func isLeftover(env *step.Env, data []byte) bool {
	pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	order, own, err := encryption.Parse(data)
	if !found || manifests.FlagOf(pod, manifests.EncryptionFlag) == config.EncryptionFile || err != nil {
		return false
	}
	sealed, _ := host.ReadIfExists(env.Host, config.EncryptionKeyring)
	seal, _ := host.ReadIfExists(env.Host, filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	ring, err := encryption.Open(sealed, seal)
	return order[0] != encryption.Identity || len(own.Keys) > 0 && (err != nil || !ring.HasAll(own.Keys))
}
