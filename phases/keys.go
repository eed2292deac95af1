// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"crypto"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/background"
)

// unlessThere reports that a new key is needed if none of the files exists. If one does, the phase checks it.
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

// newKeyInBackground generates a key with a low priority: what earlier keys have made possible, such as the start of
// the kubelet and of containers, goes first.
func newKeyInBackground(env *Env) (key crypto.Signer, err error) {
	background.Do(func() { key, err = env.pki().NewKey() })
	return key, err
}
