// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// SecretKey signs bundles.
type SecretKey struct{ key minisign.PrivateKey }

// SecretKeyFromFile reads a secret key in minisign's format. It asks for the password only if the key has one.
func SecretKeyFromFile(path string, password func() (string, error)) (*SecretKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the secret key")
	}
	var key minisign.PrivateKey
	if minisign.IsEncrypted(data) {
		text, err := password()
		if err != nil {
			return nil, err
		}
		key, err = minisign.DecryptKey(text, data)
		if err != nil {
			return nil, fault.New(path+": the password is wrong, or it is not a secret key of minisign", "try again with the key's password")
		}
	} else if err := key.UnmarshalText(data); err != nil {
		return nil, fault.New(path+" is not a secret key of minisign", "`minisign -G` makes one")
	}
	return &SecretKey{key}, nil
}

// sign signs a bundle's documents. The same key makes the same signature.
func (k *SecretKey) sign(c *contents) []byte {
	trusted := fmt.Sprintf("file:%s\tbundle %s %s", entryIndex, c.index.KubernetesVersion, c.index.platform())
	return minisign.SignWithComments(k.key, c.rawLayout, trusted, "signature of a bundle for Slipway")
}

// Sign verifies all of the bundle, and writes it again with a signature: by the key or, if that's nil, one made elsewhere for the
// bundle's index.json. It replaces an existing signature.
func Sign(ctx context.Context, path string, key *SecretKey, signature []byte) error {
	b, err := Open(path, Keys{})
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Each(ctx, nil); err != nil {
		return err
	}
	if key != nil {
		signature = key.sign(&b.contents)
	} else if err := new(minisign.Signature).UnmarshalText(signature); err != nil {
		return fault.New("the signature is not in minisign's format", "`minisign -S -m index.json` makes one")
	}
	if err := startStaging(path); err != nil {
		return err
	}
	defer os.RemoveAll(stagingOf(path))
	b.signature = signature
	return replace(path, stagingOf(path), func(w io.Writer) error {
		return b.write(w, func(blob *blob) (io.ReadCloser, error) { return b.raw(ctx, blob), nil })
	})
}
