// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Recipients are whom a sealed snapshot is encrypted to: public keys of age, or one passphrase.
type Recipients []age.Recipient

// Identities open a sealed snapshot: private keys of age, or a passphrase.
type Identities []age.Identity

// ReadRecipients reads public keys, one a line, or else a passphrase, from the files at these paths; empty for none.
func ReadRecipients(h host.FileReader, keys, passphrase string) (Recipients, error) {
	if passphrase != "" {
		text, err := readPassphrase(h, passphrase)
		if err != nil {
			return nil, err
		}
		r, err := age.NewScryptRecipient(text)
		return Recipients{r}, errors.Wrap(err, passphrase)
	}
	return readKeys(h, keys, age.ParseRecipients)
}

// ReadIdentities reads private keys, one a line, or else a passphrase, from the files at these paths; empty for none.
func ReadIdentities(h host.FileReader, keys, passphrase string) (Identities, error) {
	switch {
	case passphrase != "":
		text, err := readPassphrase(h, passphrase)
		if err != nil {
			return nil, err
		}
		i, err := age.NewScryptIdentity(text)
		return Identities{i}, errors.Wrap(err, passphrase)
	case keys != "":
		return readKeys(h, keys, age.ParseIdentities)
	}
	return nil, nil
}

// readKeys reads a file of keys. Neither age's errors nor these show a line of the file, which may be a private key.
func readKeys[T any](h host.FileReader, path string, parse func(io.Reader) ([]T, error)) ([]T, error) {
	data, err := h.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := parse(bytes.NewReader(data))
	return list, errors.Wrap(err, path)
}

// readPassphrase reads a file's only line.
func readPassphrase(h host.FileReader, path string) (string, error) {
	data, err := h.ReadFile(path)
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", errors.Errorf("%s is not a passphrase: it needs exactly one line", path)
	}
	return text, nil
}

// Names returns the public keys, or passphrase, for the record: they say which key opens the snapshot.
func (r Recipients) Names() (names []string) {
	for _, to := range r {
		if key, public := to.(fmt.Stringer); public {
			names = append(names, key.String())
		} else {
			names = append(names, "passphrase")
		}
	}
	return names
}
