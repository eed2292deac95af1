// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"

	"github.com/slipway-k8s/slipway/phases/step"
)

// EncryptionFlag names the file with the encryption keys: with another file, Secrets can't be read.
const EncryptionFlag = "encryption-provider-config"

// policyFlags name files with rules for encryption, audit, admission and access.
var policyFlags = []string{
	"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-webhook-config-file", EncryptionFlag,
}

// sameFile reports whether two paths of this host are equal or have equal contents. If one can't be read, they differ.
func sameFile(env *step.Env, a, b string) bool {
	if a == b {
		return true
	}
	one, err := env.Host.ReadFile(a)
	if err != nil {
		return false
	}
	other, err := env.Host.ReadFile(b)
	return err == nil && bytes.Equal(one, other)
}
