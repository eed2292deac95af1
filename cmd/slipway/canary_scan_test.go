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

// canary is a secret that must not be seen, and all that it may look like.
type canary struct {
	name  string
	forms [][]byte
}

// newCanary is for a value of eight bytes at least, or chance would show it.
func newCanary(name string, value []byte) canary {
	c := canary{name: name, forms: [][]byte{value, []byte(hex.EncodeToString(value)), []byte(strings.ToUpper(hex.EncodeToString(value)))}}
	// In base64 a value looks different by what stands before it: its first
	// byte is the first, second or third of a group of three. The characters
	// that it shares with its neighbours are left out.
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

// spotted names the secrets that data holds.
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

// keyCanaries are those of a private key in PEM form: the number that is the
// secret, and the lines of the file, which a kubeconfig encodes once more. A
// file without a key has none.
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
	// The end of the file is the public key, so only what comes first counts.
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	return append(list, newCanary(name, []byte(lines[1])))
}

// userCanaries are those of the users of a kubeconfig.
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
