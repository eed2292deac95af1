// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd has the command `etcd`, for the years after a cluster's first day.
package etcd

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("etcd", "Look after etcd, which holds the cluster's data", newStatus(g), newMember(g), newDefrag(g), newSnapshot(g), newRestore(g), newRecover(g), newPruneData(g))
}
