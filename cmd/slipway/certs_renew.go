// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/renewal"
	"github.com/slipway-k8s/slipway/phases"
)

func newRenew(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Renew certificates of this control plane node, with new keys",
		Long: "Renew certificates of this control plane node, with new keys, signed by the same CA.\n\n" +
			"A renewed certificate says what the old one says, and has the names besides that the\n" +
			"configuration has now: that of --config, or else the cluster's.",
		RunE: requireSubcommand,
	}
	cmd.AddCommand(renewCommand(g, "all", "Renew every certificate that is there, but for the CAs", phases.RenewOptions{}))
	for _, r := range renewal.Rows() {
		cmd.AddCommand(renewCommand(g, r.Name, "Renew the "+r.Summary, phases.RenewOptions{Name: r.Name}))
	}
	return cmd
}

func renewCommand(g *globals, use, short string, renew phases.RenewOptions) *cobra.Command {
	o := &certOptions{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, from, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			renew.AsItWas = from == sourceDefault
			real := host.New()
			defer real.Close()
			return newParts(g, node, real, false).run(cmd.Context(), phases.Renew(renew), nil)
		},
	}
	cmd.Flags().BoolVar(&renew.Restart, "restart", false, "restart the components whose files have changed, one after another, and renew an expired kubelet.conf")
	o.bind(cmd, config.DefaultCertificatesDir)
	bindKubeconfig(cmd.Flags())
	return cmd
}
