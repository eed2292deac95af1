// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
)

func newHost(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Prepare this host for init or join, or undo that",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newHostPrepare(g), newHostReset(g))
	return cmd
}
