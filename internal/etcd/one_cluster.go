// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// straggle is how long members that are slower than the first may take to say which cluster they belong to.
const straggle = 300 * time.Millisecond

// ofOneCluster returns the clients of one cluster's members. After `etcd recover` or a restore, members of the former cluster may be back:
// whatever they're asked to do is lost, and what they say isn't so any more. This host's member decides. Without one, nobody knows
// which cluster is meant.
func (r *Real) ofOneCluster(ctx context.Context, all clients) (clients, error) {
	if len(all) < 2 {
		return all, nil
	}
	ids := all.clusters(ctx)
	known := slices.Compact(slices.Sorted(slices.Values(ids)))
	if known = slices.DeleteFunc(known, func(id uint64) bool { return id == 0 }); len(known) < 2 {
		return all, nil
	}
	var own uint64
	if r.options.Own != nil {
		urls, _ := r.options.Own(ctx) // without a member of its own, this host can't decide
		for i, c := range all {
			if slices.Contains(urls, c.Endpoints()[0]) && ids[i] != 0 {
				own = ids[i]
			}
		}
	}
	var ours, foreign clients
	for i, c := range all {
		switch ids[i] {
		case 0:
		case own:
			ours = append(ours, c)
		default:
			foreign = append(foreign, c)
		}
	}
	const remedy = "members of a cluster from before `slipway etcd recover` or a restore must not run: `slipway reset --force` on their hosts, and " +
		"`kubectl delete node` for each, where the API works with the cluster that counts"
	if own == 0 {
		return nil, fault.New(fmt.Sprintf("the members of etcd at %s belong to %d clusters, and it is not known which counts", foreign.addresses(), len(known)), remedy)
	}
	if r.options.Warn != nil {
		r.warned.Do(func() {
			r.options.Warn(fmt.Sprintf("etcd at %s belongs to another cluster than this host's member, and is not asked", foreign.addresses()), remedy)
		})
	}
	return ours, nil
}

// clusters asks all members for their cluster's ID; 0 if one doesn't answer in time.
func (all clients) clusters(ctx context.Context) []uint64 {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	type result struct {
		i  int
		id uint64
	}
	results := make(chan result, len(all))
	for i, c := range all {
		go func() {
			status, err := c.Status(ctx, c.Endpoints()[0])
			if err != nil {
				results <- result{i, 0}
				return
			}
			results <- result{i, status.Header.GetClusterId()}
		}()
	}
	ids := make([]uint64, len(all))
	var enough <-chan time.Time
	for range all {
		select {
		case r := <-results:
			if ids[r.i] = r.id; r.id != 0 && enough == nil {
				enough = time.After(straggle)
			}
		case <-enough:
			return ids
		}
	}
	return ids
}

func (all clients) addresses() string {
	var list []string
	for _, c := range all {
		list = append(list, strings.TrimPrefix(c.Endpoints()[0], scheme))
	}
	return strings.Join(list, ", ")
}
