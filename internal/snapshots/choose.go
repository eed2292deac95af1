// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"slices"
	"time"
)

// Policy says how many snapshots stay: the newest ones, and for each of the last days, in UTC, the day's newest.
type Policy struct{ Newest, Days int }

// inaccuracy is how much a clock may be set back without making a snapshot count as one of the future.
const inaccuracy = time.Hour

// Ahead reports whether a snapshot was taken in the future: the host's clock was ahead.
func (s Snapshot) Ahead(now time.Time) bool { return s.Taken.After(now.Add(inaccuracy)) }

// Owner is the Node that snapshots are of. Clusters may have Nodes of the same name. ClusterUID is empty if it's not known. CA lists
// the cluster's CAs, as in Record.Authorities; without any, snapshots of unknown clusters count if their records have none either.
type Owner struct {
	Node, ClusterUID string
	CA               []string
}

// clusterCA is the name of the cluster's CA in Record.Authorities.
const clusterCA = "ca"

// has reports whether a snapshot is the owner's. Many records don't have their cluster's UID; then the CA decides.
func (o Owner) has(s Snapshot) bool {
	switch {
	case s.Node != o.Node:
		return false
	case s.ClusterUID != "" && o.ClusterUID != "":
		return s.ClusterUID == o.ClusterUID
	}
	pins := s.Authorities[clusterCA]
	if len(pins) == 0 {
		return len(o.CA) == 0
	}
	return slices.ContainsFunc(pins, func(pin string) bool { return slices.Contains(o.CA, pin) })
}

// Undecided returns the snapshots that may be the owner's, or those of another cluster's Node of the same name: a UID isn't known, and
// the CA isn't known, or was replaced since.
func Undecided(list []Snapshot, owner Owner) (undecided []Snapshot) {
	for _, s := range list {
		if s.Node == owner.Node && (s.ClusterUID == "" || owner.ClusterUID == "") && !owner.has(s) {
			undecided = append(undecided, s)
		}
	}
	return undecided
}

// OwnOf splits an owner's snapshots into past ones, and ones dated to the future by a clock that was ahead. list has the newest last.
func OwnOf(list []Snapshot, owner Owner, now time.Time) (own, ahead []Snapshot) {
	for _, s := range list {
		switch {
		case !owner.has(s):
		case s.Ahead(now):
			ahead = append(ahead, s)
		default:
			own = append(own, s)
		}
	}
	return own, ahead
}

// Newest returns an owner's newest snapshot. One of the future counts only if there's no other: nobody knows how old it is.
func Newest(list []Snapshot, owner Owner, now time.Time) (newest Snapshot, found bool) {
	own, ahead := OwnOf(list, owner, now)
	if own = append(ahead, own...); len(own) == 0 {
		return newest, false
	}
	return own[len(own)-1], true
}

// Surplus returns the snapshots of an owner that needn't stay, the oldest first. list has the newest last. Other Nodes' snapshots, in
// a directory that hosts share, aren't this one's to remove. Those of the future stay, and take no place from the others.
func (p Policy) Surplus(list []Snapshot, owner Owner, now time.Time) (surplus []Snapshot) {
	own, _ := OwnOf(list, owner, now)
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

// turn is how long each member's turn lasts. A save begins in its first half, so that it has the other half: enough for the 8 GiB that
// etcd recommends at most, at a save's pace of 16 MiB/s.
const turn = 20 * time.Minute

// UntilTurn returns how long a member has to wait until it may begin, 0 if it may now. Members take turns by their position among all, for
// ever. Two hosts that see the same members and have nearly the same time never have a turn at once, without asking anybody.
func UntilTurn(now time.Time, position, members int) time.Duration {
	if members == 1 {
		return 0
	}
	cycle := turn * time.Duration(members)
	into := time.Duration(now.UnixNano()) % cycle
	begin := turn * time.Duration(position)
	if into >= begin && into < begin+turn/2 {
		return 0
	}
	return (begin - into + cycle) % cycle
}
