// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"crypto"
	"crypto/rand"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
)

// withKey makes the two parts of a phase that needs a new private key where
// none of its files are there: to generate the key, which takes a tenth of a
// second or more, and to ensure the files, with that key if it is needed.
func withKey(
	files func(env *Env) []string, ensure func(env *Env, spare crypto.Signer) error,
) func(*Env) (func(context.Context, *Env) error, error) {
	return func(env *Env) (func(context.Context, *Env) error, error) {
		spare, err := spareKey(env, files(env))
		return func(_ context.Context, env *Env) error { return ensure(env, spare) }, err
	}
}

// spareKey is a new key, or nil where one of the files is there: whether that
// is what it should be is not said here.
func spareKey(env *Env, files []string) (crypto.Signer, error) {
	for _, path := range files {
		if _, err := env.Host.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return newKey(env, nil)
}

// newKey is the spare one, if there is one, or generated now.
func newKey(env *Env, spare crypto.Signer) (crypto.Signer, error) {
	if spare != nil {
		return spare, nil
	}
	return certs.NewKey(env.Config.Cluster.EncryptionAlgorithm, rand.Reader)
}
