// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
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
	if err == nil && isAssumed(all) {
		return []fault.Finding{fault.NewFinding("", fault.Unasked, "", "whether etcd's databases fit into the quota of %d bytes", next)}
	}
	largest, size := largestDatabase(all)
	if size == 0 {
		var unread error
		if largest, size, unread = ownDatabase(env, wanted); unread != nil {
			return []fault.Finding{fault.NewFinding("", fault.Error, "start etcd: `slipway diagnose` says what is wrong",
				"nobody knows whether etcd's databases fit into the quota of %d bytes: no member says its size (%v), and this host's can't be seen: %v",
				next, cmp.Or(err, errors.New("they answer without it")), unread)}
		}
	}
	least := size + max(size/10, minRoom)
	if next >= least {
		return nil
	}
	return []fault.Finding{fault.NewFinding("", fault.Error,
		fmt.Sprintf("set at least %d, in bytes%s; `slipway etcd defrag` frees unused space", least, where),
		"with --quota-backend-bytes=%d, etcd would refuse all writes: %s has %d bytes, and needs room to grow",
		next, largest, size)}
}

// isAssumed reports whether the members are a dry run's, which asked nobody.
func isAssumed(all []etcd.Health) bool {
	return !slices.ContainsFunc(all, func(m etcd.Health) bool { return m.Answers || m.Err != nil })
}

// largestDatabase names the largest database; its size is 0 if no member says.
func largestDatabase(all []etcd.Health) (of string, size int64) {
	for _, m := range all {
		if m.Status.Size > size {
			of, size = "the database of member "+m.Label(), m.Status.Size
		}
	}
	return of, size
}

// ownDatabase names the file with this host's database, for an etcd that doesn't answer, which may be the reason to change it.
func ownDatabase(env *step.Env, etcdPod *corev1.Pod) (name string, size int64, err error) {
	path := filepath.Join(etcdDataDirOf(etcdPod), thisnode.EtcdMemberDir, "snap", "db")
	info, err := env.Host.Stat(path)
	if err != nil {
		return "", 0, err
	}
	return "the database " + path, info.Size(), nil
}
