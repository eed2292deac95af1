// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/encryption"
)

func newRecall(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "recall KEY...",
		Short: "Restore old keys to this host's API server, for a snapshot that needs them",
		Long: "Restore old keys to this host's API server, from " + config.EncryptionKeyring + ", for a snapshot of etcd that needs\n" +
			"them. They're only used to read, and the next `encryption enable` or `rotate` drops them. It doesn't need the API.",
		Args: cli.Takes(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := env.NewRunningControlPlaneParts(cmd, g)
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), encryption.Recall(args), nil)
		},
	}
}
