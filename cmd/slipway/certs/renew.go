// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/phases/renew"
)

func newRenew(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("renew", "Renew this control plane's certificates, with new keys",
		renewCommand(g, "all", "Renew all existing certificates except the CAs", renew.Options{}))
	cmd.Long = cmd.Short + ", signed by the same CA.\n\n" +
		"A renewed certificate keeps the subject and names of the old one. Names that the configuration\n" +
		"(--config, or else the cluster's) has gained since are added."
	for _, r := range pki.RenewableRows() {
		cmd.AddCommand(renewCommand(g, r.Name, "Renew the "+r.Summary, renew.Options{Name: r.Name}))
	}
	return cmd
}

func renewCommand(g *cli.Globals, use, short string, renewal renew.Options) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if renewal.Within < 0 {
				return errors.Errorf("--within=%s: must not be negative", renewal.Within)
			}
			node, assumed, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			renewal.AsItWas = assumed
			real := linux.New()
			defer real.Close()
			return env.Acting{G: g}.Parts(node, real).Run(cmd.Context(), renew.Certificates(renewal), nil)
		},
	}
	cmd.Flags().DurationVar(&renewal.Within, "within", 0, "renew only certificates that end within this time, such as 720h")
	cmd.Flags().BoolVar(&renewal.Restart, "restart", false, "restart the components that use a renewed file, and renew an expired kubelet.conf")
	config.Bind(cmd.Flags(), "certs renew", &o.CertsFlags)
	return cmd
}
