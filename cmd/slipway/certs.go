// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
)

func newCerts(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Check and renew this control plane's certificates",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newCheckExpiration(g), newRenew(g), newGenerateCSR(g), newCertificateKeyCommand(g))
	return cmd
}

func newCertificateKeyCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "certificate-key",
		Short: "Print a new random key for sharing control plane certificates",
		Args:  takes(0, 0),
		RunE: func(*cobra.Command, []string) error {
			key, err := newCertificateKey()
			if err != nil {
				return err
			}
			newUI(g).Result(key)
			return nil
		},
	}
}
