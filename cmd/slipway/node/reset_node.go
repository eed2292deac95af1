// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/reset"
)

// newResetNode is for a host that can't run `reset` any more.
func newResetNode(g *cli.Globals) *cobra.Command {
	o := &config.RemovalFlags{}
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Remove a node whose host is lost",
		Long: "Run this on a control plane to remove a node whose host is lost: its member of etcd, its Node, and the bootstrap\n" +
			"tokens that it joined with.\n\n" +
			"The host must not answer: its Node isn't Ready, its kubelet renews no Lease for 25 seconds, its etcd is silent, and\n" +
			"connections to its addresses get no reply. A host that is only cut off from the others looks the same: turn it off.\n" +
			"A member that etcd needs for its quorum stays. --dry-run asks the API and etcd, but not the host.",
		Args: cli.Takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			lost, err := reset.NewLostNode(cmd.Context(), p.Env, args[0])
			if err == nil && !o.Yes {
				err = p.Confirm(func() error { return cli.AskBefore(cmd.Context(), g, lost.Summary(), "--yes") })
			}
			if err != nil {
				p.Close()
				return err
			}
			return p.Run(cmd.Context(), lost.Phases(), nil)
		},
	}
	config.Bind(cmd.Flags(), "reset node", o)
	env.Reporting(g, cmd)
	return cmd
}
