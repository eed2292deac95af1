// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd has the command `etcd`: the members' status, their removal and defragmentation, snapshots, restores, and recovery
// from a lost quorum. internal/etcd asks the members; phases/maintenance, phases/snapshot and phases/recovery do the work.
package etcd

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("etcd", "Look after etcd, which holds the cluster's data", newStatus(g), newMember(g), newDefrag(g), newSnapshot(g), newRestore(g), newRecover(g), newPruneData(g))
}
