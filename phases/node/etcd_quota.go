// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// minRoom is how much a database has to be able to grow, in bytes, or a tenth of its size: workflows write, and so do the clients.
const minRoom = 16 << 20

// CheckEtcdQuota finds a quota in etcd's next static Pod that's lower than now, and below the size of a database: the first write would
// raise an alarm that makes all members refuse writes, and the previous quota doesn't end that. where ends the remedy's first half,
// such as " in FILE".
func CheckEtcdQuota(ctx context.Context, env *step.Env, now, wanted *corev1.Pod, where string) []fault.Finding {
	next := manifests.EtcdQuota(wanted)
	if member, _ := manifests.ReadEtcd(wanted); member.ConfigFile != "" || next >= manifests.EtcdQuota(now) { // beside a file, etcd ignores the flag
		return nil
	}
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return []fault.Finding{fault.NewFinding("", fault.Unasked, fault.Remedy(err), "whether etcd's databases fit into the quota of %d bytes: %v", next, err)}
	}
	largest := etcd.Health{}
	for _, m := range all {
		if m.Status.Size > largest.Status.Size {
			largest = m
		}
	}
	size := largest.Status.Size
	if size == 0 {
		return []fault.Finding{fault.NewFinding("", fault.Unasked, "", "whether etcd's databases fit into the quota of %d bytes: no member says its size", next)}
	}
	least := size + max(size/10, minRoom)
	if next >= least {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error,
		fmt.Sprintf("set at least %d, in bytes%s; `slipway etcd defrag` frees unused space", least, where),
		"with --quota-backend-bytes=%d, etcd would refuse all writes: the database of member %s has %d bytes, and needs room to grow",
		next, largest.Label(), size)}
}
