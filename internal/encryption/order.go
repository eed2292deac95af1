// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Order has the names of an EncryptionConfiguration's providers, a key each, or Identity. The first encrypts, and all decrypt.
type Order []string

// Reading returns the order with a further provider that only decrypts.
func (o Order) Reading(name string) Order {
	if slices.Contains(o, name) {
		return o
	}
	if len(o) == 0 {
		return Order{name}
	}
	return slices.Insert(slices.Clone(o), 1, name)
}

// Writing returns the order with name as the provider that encrypts. All others still decrypt.
func (o Order) Writing(name string) Order {
	rest := slices.DeleteFunc(slices.Clone(o), func(n string) bool { return n == name })
	return append(Order{name}, rest...)
}

// Only returns the order of a cluster whose values all have the provider. Identity stays: snapshots from before the encryption have
// values without any.
func Only(name string) Order {
	if name == Identity {
		return Order{Identity}
	}
	return Order{name, Identity}
}

const header = "# `slipway encryption` writes this file. Without its keys, nobody can read the Secrets; with them, anyone can read them in etcd.\n" +
	"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources:\n  - secrets\n  providers:\n"

// File returns the EncryptionConfiguration with the keys in this order. The same order always gives the same bytes.
func (r Keyring) File(o Order) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header)
	for _, name := range o {
		key, found := r.Key(name)
		switch {
		case name == Identity:
			b.WriteString("  - identity: {}\n")
		case !found:
			return nil, errors.Errorf("the keyring has no key %s", name)
		default:
			fmt.Fprintf(&b, "  - secretbox:\n      keys:\n      - name: %s\n        secret: %s\n", name, key.Secret.Reveal())
		}
	}
	return b.Bytes(), nil
}

// file is the part of an EncryptionConfiguration that differs between two of ours.
type file struct {
	Resources []struct {
		Providers []struct {
			Secretbox struct {
				Keys []sealedKey `json:"keys"`
			} `json:"secretbox"`
		} `json:"providers"`
	} `json:"resources"`
}

// Parse reads an EncryptionConfiguration of File's. Any other, such as an edited one, is an error.
func Parse(data []byte) (o Order, ring Keyring, err error) {
	foreign := errors.New("it is not as `slipway encryption` writes it")
	var f file
	if yaml.Unmarshal(data, &f) != nil || len(f.Resources) != 1 { // the decoder's error may quote a key
		return nil, ring, foreign
	}
	for _, p := range f.Resources[0].Providers {
		name := Identity
		for _, k := range p.Secretbox.Keys {
			name = k.Name
			ring.Keys = append(ring.Keys, Key{k.Name, config.NewSecret(k.Secret)})
		}
		o = append(o, name)
	}
	again, err := ring.File(o)
	if err != nil || !bytes.Equal(again, data) {
		return nil, Keyring{}, foreign
	}
	return o, ring, nil
}

// Hash is how an API server names the configuration it has loaded.
func Hash(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

const (
	mostKeys  = 6 // the newest ones, of which mostNames at a time, with Identity, may be in a file
	mostNames = 4
)

// Hashes has all orders that API servers may have loaded, by their files' hashes.
func (r Keyring) Hashes() (map[string]Order, error) {
	names := []string{Identity}
	for _, k := range r.Keys[max(0, len(r.Keys)-mostKeys):] {
		names = append(names, k.Name)
	}
	all := map[string]Order{}
	var extend func(o Order) error
	extend = func(o Order) error {
		if slices.Contains(o, Identity) {
			data, err := r.File(o)
			if err != nil {
				return err
			}
			all[Hash(data)] = slices.Clone(o)
		}
		for _, name := range names {
			if len(o) < mostNames && !slices.Contains(o, name) {
				if err := extend(append(slices.Clone(o), name)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return all, extend(nil)
}

// loadedMetric has the hash of the loaded configuration as a label; since Kubernetes 1.34.
const loadedMetric = "apiserver_encryption_config_controller_last_config_info{"

// Loaded returns the hash of the EncryptionConfiguration that an API server has loaded, from its metrics; empty without one.
func Loaded(metrics io.Reader) (hash string, err error) {
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, found := strings.CutPrefix(lines.Text(), loadedMetric)
		if !found {
			continue
		}
		for label := range strings.SplitSeq(labels, ",") {
			if value, is := strings.CutPrefix(label, `hash="`); is {
				hash, _, _ = strings.Cut(value, `"`)
			}
		}
	}
	return hash, errors.WithStack(lines.Err())
}

// Has returns a function that reports whether a value in etcd was written by the provider of this name.
func Has(name string) func(value []byte) bool {
	const encrypted = "k8s:enc:"
	if name == Identity {
		return func(value []byte) bool { return !bytes.HasPrefix(value, []byte(encrypted)) }
	}
	prefix := []byte(encrypted + "secretbox:v1:" + name + ":")
	return func(value []byte) bool { return bytes.HasPrefix(value, prefix) }
}
