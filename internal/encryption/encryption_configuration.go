// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	all, text := r.blocks(), header
	for _, name := range o {
		block, found := all[name]
		if !found {
			return nil, errors.Errorf("the keyring has no key %s", name)
		}
		text += block
	}
	return []byte(text), nil
}

const identityBlock = "  - identity: {}\n"

func (k Key) block() string {
	return fmt.Sprintf("  - secretbox:\n      keys:\n      - name: %s\n        secret: %s\n", k.Name, k.Secret.Reveal())
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

// Parse reads an EncryptionConfiguration of File's. Any other, such as an edited one, or one without providers, is an error.
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
	if err != nil || len(o) == 0 || !bytes.Equal(again, data) {
		return nil, Keyring{}, foreign
	}
	return o, ring, nil
}

// Hash is how an API server names the configuration it has loaded.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// reach limits a search for the order of a file: to so many of the newest keys, and so many providers in the file.
type reach struct{ keys, providers int }

// reaches covers files of rotations first, then those with recalled keys. The second has some 50,000 orders, which takes a tenth of a second.
var reaches = []reach{{6, 5}, {24, 4}}

// Find returns the order of the file with this hash. likely are names to try in any case, however old their keys are.
func (r Keyring) Find(hash string, likely ...string) (o Order, found bool) {
	for _, limit := range reaches {
		s := search{r.blocks(), r.within(limit, likely), limit.providers, hash}
		if o = s.after(nil, []byte(header)); o != nil {
			return o, true
		}
	}
	return nil, false
}

// Findable reports whether Find finds the order on control planes that have the same keys in their own files. On any other, it only
// doesn't find a few providers that include a very old key.
func (r Keyring) Findable(o Order) bool {
	rotations, recalled := reaches[0], reaches[1]
	newest := r.within(rotations, nil)
	return len(o) <= recalled.providers ||
		len(o) <= rotations.providers && !slices.ContainsFunc(o, func(name string) bool { return !slices.Contains(newest, name) })
}

// within returns the names of the providers to try.
func (r Keyring) within(limit reach, likely []string) []string {
	names := []string{Identity}
	add := func(name string) {
		if _, found := r.Key(name); found && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(r.Target)
	for _, name := range likely {
		add(name)
	}
	for _, k := range r.Keys[max(0, len(r.Keys)-limit.keys):] {
		add(k.Name)
	}
	return names
}

// blocks are the parts of a file, by the providers' names.
type blocks map[string]string

func (r Keyring) blocks() blocks {
	all := blocks{Identity: identityBlock}
	for _, k := range r.Keys {
		all[k.Name] = k.block()
	}
	return all
}

// search looks for the order of a file with at most so many of these providers.
type search struct {
	blocks blocks
	names  []string
	most   int
	hash   string
}

// after tries all orders that begin with o, whose file begins with text. A file of ours always has Identity.
func (s search) after(o Order, text []byte) Order {
	if slices.Contains(o, Identity) && Hash(text) == s.hash {
		return o
	}
	if len(o) == s.most {
		return nil
	}
	for _, name := range s.names {
		if slices.Contains(o, name) || len(o)+1 == s.most && name != Identity && !slices.Contains(o, Identity) {
			continue
		}
		if found := s.after(append(slices.Clip(o), name), append(slices.Clip(text), s.blocks[name]...)); found != nil {
			return found
		}
	}
	return nil
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

// Provider returns the name of the provider that wrote a value in etcd: a key's, or Identity. Of a provider that isn't ours, it
// returns what the value begins with.
func Provider(value []byte) string {
	rest, encrypted := bytes.CutPrefix(value, []byte("k8s:enc:"))
	if !encrypted {
		return Identity
	}
	parts := strings.SplitN(string(rest[:min(len(rest), longestPrefix)]), ":", 4)
	if len(parts) < 4 {
		return "of an unknown kind"
	}
	if parts[0] == "secretbox" && parts[1] == "v1" {
		return parts[2]
	}
	return strings.Join(parts[:3], ":")
}

const longestPrefix = 512
