// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/recovery"
)

func newRecover(g *cli.Globals) *cobra.Command {
	o := &config.RecoverFlags{}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Continue with this host's member alone after etcd has lost its quorum for good",
		Long: "Continue with this host's member alone after etcd has lost its quorum for good: the hosts of too many members, or their\n" +
			"disks, will not come back. Run it where the log is longest; --dry-run shows this host's.\n\n" +
			"Everything in this host's log stays. Changes at its end may not be committed: it isn't known whether clients were told of their\n" +
			"success. They are counted, and kept unless you drop them. It refuses while etcd could regain its quorum, and while\n" +
			"another member answers, unless you abandon it. The other control planes are reset and join again afterwards.\n\n" +
			"The same command finishes a recovery that was interrupted. Before it moves any data, it checks the other members again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			p.Ignore(o.IgnorePreflightErrors)
			r, err := recovery.New(cmd.Context(), p.Env, recovery.Options{Drop: o.DropUncommitted, Abandon: o.Abandon})
			if err != nil {
				p.Close()
				return err
			}
			return confirmed(cmd, g, p, o.Yes, r)
		},
	}
	config.Bind(cmd.Flags(), "etcd recover", o)
	env.Reporting(g, cmd)
	return cmd
}
