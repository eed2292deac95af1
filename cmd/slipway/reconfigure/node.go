// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
)

func newNode(g *cli.Globals) *cobra.Command {
	o, moves := &config.ReconfigureFlags{}, &addressFlags{}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Bring this node to the cluster's configuration, on trial",
		Long: "Bring this node to the configuration that `reconfigure` has stored in the cluster: a control plane's certificates, static Pods and\n" +
			"kubelet, and a worker's kubelet. A worker needs no kubeconfig file but its kubelet's.\n\n" +
			"The change is on trial, as on the first control plane. A worker's kubelet has to be healthy for ten seconds, and to report.\n" +
			"If not, Slipway restores the node's previous files.\n\n" +
			"--diff shows how this node differs from the cluster's configuration, and changes nothing.\n\n" +
			"With --advertise-address, --node-ip or --endpoint, it instead moves this node to another address, or points it at another API\n" +
			"endpoint. That works without the API, and isn't on trial. After an interruption, the same command finishes the move; to undo a\n" +
			"move, run it with the old address.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if moves.given() {
				return moves.run(cmd, g, o.IgnorePreflightErrors)
			}
			c := changing{o: o, living: env.NewRunningNodeParts, phases: (*reconfigure.Run).NodePhases, load: func(_ *env.Input, l reconfiguring.Loader) (*reconfigure.Run, []string, error) {
				c, warnings, err := l.Stored(cmd.Context())
				return reconfigure.New(c, ""), warnings, err
			}}
			return c.run(cmd, g)
		},
	}
	config.Bind(cmd.Flags(), "reconfigure node", o)
	moves.bind(cmd.Flags())
	for _, move := range []string{"advertise-address", "node-ip", "endpoint"} {
		cmd.MarkFlagsMutuallyExclusive(move, "try")
		cmd.MarkFlagsMutuallyExclusive(move, "patches")
	}
	env.Reporting(g, cmd)
	return cmd
}
