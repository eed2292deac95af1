// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

type SecretKey struct{ key minisign.PrivateKey }

// SecretKeyFromFile reads a secret key in minisign's format. It asks for a password only if the key has one.
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

// Sign verifies all of the bundle, and writes it again with a signature: the key's or, if that's nil, the given signature of the
// bundle's index.json, which one of the trusted keys must have made, if there are any. It replaces an existing signature.
func Sign(ctx context.Context, path string, key *SecretKey, signature []byte, trusted Keys) error {
	path, err := target(path)
	if err != nil {
		return err
	}
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
	} else if _, err := trusted.verify(b.rawLayout, signature); err != nil {
		return fault.WithRemedy(errors.WithMessage(err, "the signature is not of this bundle, or by another key"),
			"sign this bundle's index: `tar -xOf "+path+" index.json`")
	}
	endStaging, err := startStaging(path)
	if err != nil {
		return err
	}
	defer endStaging()
	b.signature = signature
	return replace(ctx, path, func(w io.Writer) error {
		return b.write(w, func(blob *blob) (io.ReadCloser, error) { return b.raw(ctx, blob), nil })
	})
}

// KeysDir has the public keys this host trusts for bundles.
const KeysDir = "/etc/slipway/bundle-keys.d"

// keySuffix ends the names of public keys' files.
const keySuffix = ".pub"

// Keys are public keys, one of which must have signed a bundle. Without a key, a bundle needs no signature.
type Keys struct{ trusted []trustedKey }

type trustedKey struct {
	path string
	key  minisign.PublicKey
}

// Required reports whether bundles must be signed.
func (k Keys) Required() bool { return len(k.trusted) > 0 }

// configuredKeys reads all *.pub files in dir, which needn't exist. A file that can't be read, or isn't a key, is an error, and so
// is a link that leads nowhere: without its keys, every bundle would do.
func configuredKeys(dir string) (Keys, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return Keys{}, danglingLink(dir)
	}
	if err != nil {
		return Keys{}, errors.Wrap(err, "cannot look for the public keys of bundles")
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), keySuffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 && len(entries) > 0 {
		return Keys{}, fault.New(fmt.Sprintf("%s has files, but no public key: no name ends in %s", dir, keySuffix),
			"name each key's file like release"+keySuffix+", or remove the directory")
	}
	return keysFromFiles(paths...)
}

// danglingLink is an error if a path is missing because it, or a directory it's in, is a link to nothing.
func danglingLink(path string) error {
	for {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		parent := filepath.Dir(path)
		if parent == path {
			return nil
		}
		path = parent
	}
	to, notLink := os.Readlink(path)
	_, err := os.Stat(path)
	if notLink != nil || !os.IsNotExist(err) {
		return err
	}
	return fault.New(fmt.Sprintf("cannot read the public keys of bundles: %s is a link to %s, which is missing", path, to),
		"restore "+to+", or remove the link if you no longer want bundles to be signed by its keys")
}

// TrustedKeys are the keys in files or, without files, the keys this host trusts.
func TrustedKeys(files []string) (Keys, error) {
	if len(files) > 0 {
		return keysFromFiles(files...)
	}
	return configuredKeys(KeysDir)
}

func keysFromFiles(paths ...string) (Keys, error) {
	var k Keys
	for _, path := range paths {
		key, err := minisign.PublicKeyFromFile(path)
		if err != nil {
			if dangling := danglingLink(path); dangling != nil {
				return Keys{}, dangling
			}
			return Keys{}, fault.WithRemedy(errors.Wrapf(err, "%s is not a public key for bundles", path),
				"it must be a file that `minisign -G` has made, and be readable")
		}
		k.trusted = append(k.trusted, trustedKey{path, key})
	}
	return k, nil
}

// verify returns which key signed the message, for people; "" without keys.
func (k Keys) verify(message, signature []byte) (string, error) {
	if !k.Required() {
		return "", nil
	}
	if len(signature) == 0 {
		return "", fault.New("the bundle is not signed, and this host trusts only bundles signed by "+k.describe(),
			"get a signed bundle, or sign it with `slipway bundle sign`")
	}
	for _, t := range k.trusted {
		if minisign.Verify(t.key, message, signature) {
			return fmt.Sprintf("%s (%s)", t.key, t.path), nil
		}
	}
	return "", k.refuse(signature)
}

// refuse says why no key fits, going by the key the signature names.
func (k Keys) refuse(signature []byte) error {
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil {
		return fault.New("the bundle's signature "+entrySignature+" is not in minisign's format", "get the bundle again")
	}
	for _, t := range k.trusted {
		if t.key.ID() == s.KeyID {
			return fault.New(fmt.Sprintf("the bundle's signature is wrong: it was changed after %s had signed it", t.path), "get the bundle again; do not use this one")
		}
	}
	return fault.New(fmt.Sprintf("the bundle is signed by the key %X, and this host trusts only %s", s.KeyID, k.describe()),
		fmt.Sprintf("if you trust that key, put its public key in %s, or name it with --public-key", KeysDir))
}

func (k Keys) describe() string {
	var names []string
	for _, t := range k.trusted {
		names = append(names, fmt.Sprintf("%X (%s)", t.key.ID(), t.path))
	}
	return strings.Join(names, ", ")
}
