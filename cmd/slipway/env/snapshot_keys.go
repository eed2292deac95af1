// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"path/filepath"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
)

// Opening has the flags for an encrypted snapshot.
type Opening struct{ keys, passphrase string }

// Bind adds the flags.
func (o *Opening) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.keys, "identity-file", "", "`file` with private keys (AGE-SECRET-KEY-...) that open encrypted snapshots, one a line")
	fs.StringVar(&o.passphrase, "passphrase-file", "", "`file` with the passphrase that opens encrypted snapshots")
}

// Identities reads the keys; none if no flag was given.
func (o *Opening) Identities(h host.FileReader) (snapshots.Identities, error) {
	if o.keys != "" && o.passphrase != "" {
		return nil, errors.New("use either --identity-file or --passphrase-file")
	}
	keys, passphrase, err := Absolute(o.keys, o.passphrase)
	if err != nil {
		return nil, err
	}
	return snapshots.ReadIdentities(h, keys, passphrase)
}

// Absolute makes paths absolute, except empty paths.
func Absolute(a, b string) (string, string, error) {
	for _, path := range []*string{&a, &b} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return "", "", err
		}
		*path = abs
	}
	return a, b, nil
}
