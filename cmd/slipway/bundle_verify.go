// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newBundleVerify(g *globals) *cobra.Command {
	o := &bundleOptions{}
	cmd := &cobra.Command{
		Use:               "verify BUNDLE",
		Short:             "Read all of a bundle, and verify its signature and every part",
		Args:              takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			if err := b.Each(cmd.Context(), nil); err != nil {
				return err
			}
			signed := "no public key is configured, so nobody says who made it"
			if b.SignedBy() != "" {
				signed = "signed by " + b.SignedBy()
			}
			x := b.Index()
			_, err = fmt.Fprintf(g.streams.out, "%s: %d parts of %s for %s/%s are complete; %s\n", args[0], len(x.Parts), x.KubernetesVersion, x.OS, x.Architecture, signed)
			return err
		},
	}
	o.bind(cmd.Flags())
	return cmd
}
