// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package encryption knows how a cluster's Secrets are encrypted in etcd: the keys, sealed for the way between control planes
// (Keyring); the API server's EncryptionConfiguration (Order); and which step comes next (Next). docs/design/encryption.md has the
// reasons. It does no I/O.
package encryption

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Identity is the name of the provider that doesn't encrypt.
const Identity = "identity"

// The sealed keyring is in a Secret in kube-system, under a key, on the way to other control planes.
const (
	KeyringSecret = "slipway-encryption-keyring"
	KeyringKey    = "keyring"
)

// Key encrypts Secrets, with XSalsa20 and Poly1305 (secretbox). Values in etcd begin with its name, so it keeps the name for ever.
type Key struct {
	Name   string
	Secret config.Secret // 32 bytes in base64
}

// NewKey returns a random key. Names sort by their time.
func NewKey(now time.Time) Key {
	var secret [32]byte
	var unique [2]byte
	_, _ = rand.Read(secret[:]) // never fails
	_, _ = rand.Read(unique[:])
	return Key{
		Name:   namePrefix + now.UTC().Format(nameTime) + "-" + hex.EncodeToString(unique[:]),
		Secret: config.NewSecret(base64.StdEncoding.EncodeToString(secret[:])),
	}
}

const (
	namePrefix = "slipway-"
	nameTime   = "20060102t150405"
)

// Made returns when a key was made, by its name; the zero time if it doesn't say.
func Made(name string) time.Time {
	text := strings.TrimPrefix(name, namePrefix)
	made, _ := time.Parse(nameTime, text[:min(len(nameTime), len(text))])
	return made
}

// Keyring has all keys that a value in etcd, or in a snapshot of it, may need, oldest first.
type Keyring struct {
	Keys []Key
	// Target is the name of the key, or Identity, that all values are to have; empty if nobody has asked for any.
	Target string
}

// Key returns the key of this name.
func (r Keyring) Key(name string) (Key, bool) {
	i := slices.IndexFunc(r.Keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return r.Keys[i], true
}

// HasAll reports whether the keyring has these very keys.
func (r Keyring) HasAll(keys []Key) bool {
	return !slices.ContainsFunc(keys, func(k Key) bool { return !slices.Contains(r.Keys, k) })
}

// NewKey returns a key that's newer by its name than all others, whatever the clock says.
func (r Keyring) NewKey(now time.Time) Key {
	for _, k := range r.Keys {
		if after := Made(k.Name).Add(time.Second); after.After(now) {
			now = after
		}
	}
	return NewKey(now)
}

// With returns the keyring with further keys. Two keys of one name are an error: nobody could tell which one a value needs.
func (r Keyring) With(keys ...Key) (Keyring, error) {
	r.Keys = slices.Clone(r.Keys)
	for _, k := range keys {
		have, found := r.Key(k.Name)
		switch {
		case !found:
			r.Keys = append(r.Keys, k)
		case have.Secret != k.Secret:
			return r, errors.Errorf("there are two different encryption keys with the name %s", k.Name)
		}
	}
	slices.SortStableFunc(r.Keys, func(a, b Key) int { return cmp.Compare(a.Name, b.Name) })
	return r, nil
}

// TargetBeforeRestore returns a host's memory of the target, if that has a newer key than this keyring: etcd was restored, and
// with it an earlier keyring. Its target may be retired, and mustn't become the target again.
func (r Keyring) TargetBeforeRestore(here Keyring) (target string, restored bool) {
	restored = here.Target != "" && here.Target != r.Target && here.newest() > r.newest()
	return here.Target, restored
}

// newest is the name of the newest key; empty without any.
func (r Keyring) newest() string {
	if len(r.Keys) == 0 {
		return ""
	}
	return r.Keys[len(r.Keys)-1].Name
}

// Same reports whether both have the same keys and target.
func (r Keyring) Same(other Keyring) bool {
	return r.Target == other.Target && slices.Equal(r.Keys, other.Keys)
}

// sealedRing is a Keyring before it's sealed.
type sealedRing struct {
	Target string      `json:"target"`
	Keys   []sealedKey `json:"keys"`
}

type sealedKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// Seal encrypts and authenticates a keyring with a key derived from sa.key, which every control plane has, and no other node.
func (r Keyring) Seal(serviceAccountKey []byte) ([]byte, error) {
	aead, err := sealer(serviceAccountKey)
	if err != nil {
		return nil, err
	}
	plain := sealedRing{Target: r.Target, Keys: []sealedKey{}}
	for _, k := range r.Keys {
		plain.Keys = append(plain.Keys, sealedKey{k.Name, k.Secret.Reveal()})
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return nil, errors.New("cannot encode the keyring")
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return aead.Seal(nonce, nonce, data, nil), nil
}

// Open reverses Seal.
func Open(sealed, serviceAccountKey []byte) (Keyring, error) {
	aead, err := sealer(serviceAccountKey)
	if err != nil {
		return Keyring{}, err
	}
	if len(sealed) < aead.NonceSize() {
		return Keyring{}, errNotOurs
	}
	data, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
	var plain sealedRing
	if err != nil || json.Unmarshal(data, &plain) != nil {
		return Keyring{}, errNotOurs
	}
	r := Keyring{Target: plain.Target}
	for _, k := range plain.Keys {
		r.Keys = append(r.Keys, Key{k.Name, config.NewSecret(k.Secret)})
	}
	return r, nil
}

var errNotOurs = errors.New("it was not sealed with this host's sa.key, or somebody has changed it")

// sealer derives its key from the private key itself, not from the file, which may have another form on another host.
func sealer(serviceAccountKey []byte) (cipher.AEAD, error) {
	private, err := certs.ParseKey(serviceAccountKey)
	if err != nil {
		return nil, errors.WithMessage(err, "sa.key")
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, errors.New("cannot use sa.key to seal encryption keys")
	}
	key, err := hkdf.Key(sha256.New, der, nil, "slipway-encryption-keyring-v1", 32)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	return cipher.NewGCM(block)
}
