// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
)

func newCerts(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Look after the certificates of this control plane node",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newCheckExpiration(g), newRenew(g), newGenerateCSR(g), newCertificateKeyCommand(g))
	return cmd
}

func newCertificateKeyCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "certificate-key",
		Short: "Print a new key for sharing the control plane's certificates",
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
