// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/pki"
)

func newGenerateCSR(g *globals) *cobra.Command {
	o := &certOptions{offline: true}
	cmd := &cobra.Command{
		Use:   "generate-csr",
		Short: "Write keys and certificate signing requests for a CA that is kept elsewhere",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := host.New()
			defer real.Close()
			return pki.Store{Config: node, Host: real, UI: newUI(g)}.GenerateCSRs()
		},
	}
	o.Bind(cmd.Flags(), "certs generate-csr")
	return cmd
}
