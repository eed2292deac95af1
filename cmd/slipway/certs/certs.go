// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package certs has the commands `certs` and `kubeconfig`.
package certs

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("certs", "Check and renew this control plane's certificates",
		newCheckExpiration(g), newRenew(g), newGenerateCSR(g), newCertificateKeyCommand(g))
}

func newCertificateKeyCommand(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "certificate-key",
		Short: "Print a new random key for sharing control plane certificates",
		RunE: func(*cobra.Command, []string) error {
			key, err := env.NewCertificateKey()
			if err != nil {
				return err
			}
			cli.NewUI(g).Result(key)
			return nil
		},
	}
}

func newGenerateCSR(g *cli.Globals) *cobra.Command {
	o := &options{offline: true}
	cmd := &cobra.Command{
		Use:   "generate-csr",
		Short: "Write keys and certificate signing requests for a CA that is kept elsewhere",
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := linux.New()
			defer real.Close()
			return pki.Store{Config: node, Host: real, UI: cli.NewUI(g)}.GenerateCSRs()
		},
	}
	config.Bind(cmd.Flags(), "certs generate-csr", &o.CertsFlags)
	return cmd
}
