// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
)

// sealing are the flags that encrypt a snapshot. A passphrase is never a flag's value: others could see it in the list of processes.
type sealing struct {
	withPKI          bool
	keys, passphrase string
}

func (s *sealing) bind(fs *pflag.FlagSet) {
	fs.BoolVar(&s.withPKI, "with-pki", false, "add this control plane's certificates, keys and configuration, and encrypt the file")
	fs.StringVar(&s.keys, "recipients-file", "", "`file` with the public keys (age1...) to encrypt to, one a line, for --with-pki")
	fs.StringVar(&s.passphrase, "passphrase-file", "", "`file` with the passphrase to encrypt with, for --with-pki")
}

func (s *sealing) check() error {
	switch given := s.keys != "" || s.passphrase != ""; {
	case s.withPKI && !given:
		return errors.New("--with-pki needs --recipients-file or --passphrase-file: keys are only saved encrypted")
	case given && !s.withPKI:
		return errors.New("--recipients-file and --passphrase-file need --with-pki: other snapshots are not encrypted")
	case s.keys != "" && s.passphrase != "":
		return errors.New("use either --recipients-file or --passphrase-file: age encrypts to public keys or to a passphrase, never to both")
	}
	return nil
}

func (s *sealing) recipients(h host.FileReader) (snapshots.Recipients, error) {
	if !s.withPKI {
		return nil, nil
	}
	keys, passphrase, err := env.Absolute(s.keys, s.passphrase)
	if err != nil {
		return nil, err
	}
	return snapshots.ReadRecipients(h, keys, passphrase)
}
