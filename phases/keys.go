// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto"
	"crypto/rand"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
)

// unlessThere tells that a new key is needed where none of the files is there:
// whether one that is there is what it should be is for the phase to say.
func unlessThere(files func(env *Env) []string) func(env *Env) bool {
	return func(env *Env) bool {
		for _, path := range files(env) {
			if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return false
			}
		}
		return true
	}
}

// newKey generates a private key as the configuration wants it.
func newKey(env *Env) (crypto.Signer, error) {
	return certs.NewKey(env.Config.Cluster.EncryptionAlgorithm, rand.Reader)
}

// orNewKey is the key that was generated for a phase, or one that is generated
// now.
func orNewKey(env *Env, key crypto.Signer) (crypto.Signer, error) {
	if key != nil {
		return key, nil
	}
	return newKey(env)
}
