// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EncryptionFileCheck is the check that this control plane has the file with the encryption keys, if the configuration names it.
const EncryptionFileCheck = "EncryptionFile"

// LacksEncryptionFile finds that this control plane hasn't taken part in the encryption yet: its API server would not start.
func LacksEncryptionFile(env *step.Env) []fault.Finding {
	if env.Config.Cluster.EncryptedBy() != config.EncryptionFile {
		return nil
	}
	_, err := env.Host.Stat(config.EncryptionFile)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		f := fault.Of(err)
		f.Name = EncryptionFileCheck
		return []fault.Finding{f}
	}
	return []fault.Finding{fault.NewFinding(EncryptionFileCheck, fault.Error, "run `slipway encryption enable` on this control plane, which writes the file, and then this command again",
		"the cluster's API servers read their encryption keys from %s, which is not on this host", config.EncryptionFile)}
}
