// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
)

func newTokenList(g *globals) *cobra.Command {
	out := &outputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens in the cluster",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := tokenParts(cmd, g, nil, "text")
			if err != nil {
				return err
			}
			defer p.close()
			tokens, err := tokensOf(p).List(cmd.Context())
			if err != nil {
				return err
			}
			now := p.env.Host.Now()
			list := make([]*tokenObject, len(tokens))
			for i, t := range tokens {
				list[i] = newTokenObject(t, now)
			}
			return printList(out, g, list, func(w io.Writer) error { return tokenTable(w, list, now) })
		},
	}
	out.bind(cmd.Flags())
	return cmd
}
