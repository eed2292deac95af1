// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// slowMemberDelay is how long members that are slower than the first may take to say which cluster they belong to, where they don't
// decide.
const slowMemberDelay = 300 * time.Millisecond

// ofOneCluster returns the clients of one cluster's members. After `etcd recover` or a restore, members of the former cluster may be
// back: whatever they're asked to do is lost, and what they say isn't so any more. This host's member decides or, if it doesn't
// answer, its data; then a member that hasn't said which cluster it belongs to isn't asked either. Without both, nobody knows which of
// several clusters is meant.
func (r *Real) ofOneCluster(ctx context.Context, all clients) (clients, error) {
	if len(all) < 2 {
		return all, nil
	}
	own := r.own(ctx, all)
	stored, unread := r.stored()
	ids := all.clusters(ctx, r.answerTime(), own, r.options.OwnCluster != nil && stored == 0 && unread == nil)
	known := slices.Compact(slices.Sorted(slices.Values(ids)))
	if known = slices.DeleteFunc(known, func(id uint64) bool { return id == 0 }); len(known) == 0 {
		return all, nil
	}
	wanted := stored
	if i := slices.IndexFunc(own, func(i int) bool { return ids[i] != 0 }); i >= 0 {
		wanted = ids[own[i]]
	} else if unread != nil {
		return nil, unread
	}
	decided := wanted != 0
	if !decided && len(known) == 1 { // this host has no etcd, or it hasn't started yet
		wanted = known[0]
	}
	var ours, foreign clients
	for i, c := range all {
		switch ids[i] {
		case 0:
		case wanted:
			ours = append(ours, c)
		default:
			foreign = append(foreign, c)
		}
	}
	switch {
	case len(foreign) > 0:
		return ours, r.leaveOut(foreign, len(ours) > 0, wanted)
	case decided:
		return ours, nil
	}
	return all, nil
}

// own returns the positions of this host's clients.
func (r *Real) own(ctx context.Context, all clients) (positions []int) {
	if r.options.Own == nil {
		return nil
	}
	urls, _ := r.options.Own(ctx) // without a member of its own, this host can't decide
	for i, c := range all {
		if slices.Contains(urls, c.Endpoints()[0]) {
			positions = append(positions, i)
		}
	}
	return positions
}

// stored returns the ID of this host's cluster by its data; 0 without data.
func (r *Real) stored() (uint64, error) {
	if r.options.OwnCluster == nil {
		return 0, nil
	}
	id, err := r.options.OwnCluster()
	err = errors.WithMessage(err, "this host's member of etcd does not answer, and its data does not say which cluster it belongs to")
	return id, fault.WithRemedy(err, "start this host's etcd (`slipway diagnose` says what is wrong); if its data is lost, run `slipway reset --force` here, and "+
		"`slipway etcd member remove` on another control plane")
}

// leaveOut warns that members aren't asked, and fails if nobody else can be. wanted is the ID of this host's cluster; 0 if it's
// unknown.
func (r *Real) leaveOut(foreign clients, others bool, wanted uint64) error {
	const remedy = "members of a cluster from before `slipway etcd recover` or a restore must not run: `slipway reset --force` on their hosts, and " +
		"`kubectl delete node` for each, where the API works with the cluster that counts"
	switch {
	case wanted == 0:
		return fault.New(fmt.Sprintf("the members of etcd at %s belong to several clusters, and it is not known which counts", foreign.addresses()), remedy)
	case !others:
		return retryable(fault.New(fmt.Sprintf("etcd at %s belongs to another cluster than this host's member, which does not answer", foreign.addresses()),
			"start this host's etcd (`slipway diagnose` says what is wrong); "+remedy))
	case r.options.Warn != nil:
		r.warned.Do(func() {
			r.options.Warn(fmt.Sprintf("etcd at %s belongs to another cluster than this host's member, and is not asked", foreign.addresses()), remedy)
		})
	}
	return nil
}

// clusters asks all members for their cluster's ID; 0 if one doesn't answer in time. This host's, at the positions own, decides, so
// it gets all of limit. If it can't, everybody gets as much: only then does this host see that there are two clusters.
func (all clients) clusters(ctx context.Context, limit time.Duration, own []int, everybody bool) []uint64 {
	if ends, ok := ctx.Deadline(); ok { // the question itself needs time, too
		limit = min(limit, max(answerTimeout, time.Until(ends)/2))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
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
	over, asked := false, slices.Clone(own)
	for i := 0; everybody && i < len(all); i++ {
		asked = append(asked, i)
	}
	for left := len(all); left > 0 && (!over || len(asked) > 0); {
		select {
		case r := <-results:
			left--
			if ids[r.i] = r.id; r.id != 0 && enough == nil {
				enough = time.After(slowMemberDelay)
			}
			asked = slices.DeleteFunc(asked, func(i int) bool { return i == r.i || slices.Contains(own, r.i) && r.id != 0 })
		case <-enough:
			over = true
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
