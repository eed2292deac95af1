// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
)

// canary is a secret nobody may see, in all its forms.
type canary struct {
	name  string
	forms [][]byte
}

// newCanary needs a value of at least eight bytes, or chance would show it.
func newCanary(name string, value []byte) canary {
	c := canary{name: name, forms: [][]byte{value, []byte(hex.EncodeToString(value)), []byte(strings.ToUpper(hex.EncodeToString(value)))}}
	// A value's base64 form depends on its place: its first byte is the first, second or third of a group of three. Characters it
	// shares with its neighbours are left out.
	for before, shared := range []int{0, 2, 3} {
		padded := append(make([]byte, before), value...)
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			form := []byte(encoding.EncodeToString(padded)[shared : len(padded)*8/6])
			if !slices.ContainsFunc(c.forms, func(f []byte) bool { return bytes.Equal(f, form) }) {
				c.forms = append(c.forms, form)
			}
		}
	}
	return c
}

// in reports whether the secret is in data, in one piece or broken into lines.
func (c canary) in(data, joined []byte) bool {
	return slices.ContainsFunc(c.forms, func(form []byte) bool { return bytes.Contains(data, form) || bytes.Contains(joined, form) })
}

var lineBreaks = strings.NewReplacer("\n", "", "\r", "", " ", "", "\t", "", `\n`, "")

func spotted(canaries []canary, data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	joined := []byte(lineBreaks.Replace(string(data)))
	var names []string
	for _, c := range canaries {
		if c.in(data, joined) && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// keyCanaries returns the secrets of a private key in PEM form: its secret number, and the file's first line of data, which a
// kubeconfig encodes once more. A file without a key has none.
func keyCanaries(name string, file []byte) []canary {
	key, err := certs.ParseKey(file)
	if err != nil {
		return nil
	}
	var list []canary
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if d, err := key.Bytes(); err == nil {
			list = append(list, newCanary(name, d))
		}
	case *rsa.PrivateKey:
		list = append(list, newCanary(name, key.D.Bytes()), newCanary(name, key.Primes[0].Bytes()))
	}
	// The file ends with the public key, so only its beginning counts.
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	return append(list, newCanary(name, []byte(lines[1])))
}

// userCanaries returns the secrets of a kubeconfig's users.
func userCanaries(name string, file []byte) []canary {
	var kubeconfig struct {
		Users []struct {
			User struct {
				Token   string `json:"token"`
				KeyData []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(file, &kubeconfig); err != nil {
		return nil
	}
	var list []canary
	for _, u := range kubeconfig.Users {
		list = append(list, keyCanaries(name, u.User.KeyData)...)
		if len(u.User.Token) >= 8 {
			list = append(list, newCanary(name, []byte(u.User.Token)))
		}
	}
	return list
}
