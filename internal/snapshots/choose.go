// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"slices"
	"time"
)

// Policy says how many snapshots stay: the newest ones, and for each of the last days, in UTC, the day's newest.
type Policy struct{ Newest, Days int }

// Surplus returns the snapshots of a Node that needn't stay, the oldest first. list has the newest last. Other Nodes' snapshots, in
// a directory that hosts share, aren't this one's to remove.
func (p Policy) Surplus(list []Snapshot, node string, now time.Time) (surplus []Snapshot) {
	own := slices.DeleteFunc(slices.Clone(list), func(s Snapshot) bool { return s.Node != node })
	first := startOfDay(now).AddDate(0, 0, 1-p.Days)
	kept := map[time.Time]bool{}
	for i, s := range slices.Backward(own) {
		day := startOfDay(s.Taken)
		daily := !day.Before(first) && !kept[day]
		kept[day] = true
		if len(own)-i > p.Newest && !daily {
			surplus = append(surplus, s)
		}
	}
	slices.Reverse(surplus)
	return surplus
}

func startOfDay(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// turn is how long each member's turn lasts: more than enough for the 8 GiB that etcd recommends at most.
const turn = 10 * time.Minute

// UntilTurn returns how long a member has to wait for its turn, 0 during it. Members take turns by their position among all, for
// ever. Two hosts that see the same members and have nearly the same time never have a turn at once, without asking anybody.
func UntilTurn(now time.Time, position, members int) time.Duration {
	cycle := turn * time.Duration(members)
	into := time.Duration(now.UnixNano()) % cycle
	begin := turn * time.Duration(position)
	if into >= begin && into < begin+turn {
		return 0
	}
	return (begin - into + cycle) % cycle
}
