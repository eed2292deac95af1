// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"slices"
	"strings"
)

// Checks that guard data and access.
const (
	EtcdQuorum          = "EtcdQuorum"
	EtcdQuota           = "EtcdQuota"
	EtcdOtherMembers    = "EtcdOtherMembers"
	EtcdSnapshotCluster = "EtcdSnapshotCluster"
	StaticPodProtection = "StaticPodProtection"

	RestoredConfiguration = "RestoredConfiguration"
	ChangedSince          = "ChangedSince"
	UnfinishedChange      = "UnfinishedChange"
	ComponentProbe        = "ComponentProbe"
)

// guards can be ignored only by name: scripts pass `all` for things like too little memory, and that must not cost a cluster its quorum
// or its Secrets. An upgrade's StaticPodProtection can't be ignored at all.
var guards = []string{
	EtcdQuorum, EtcdQuota, EtcdOtherMembers, EtcdSnapshotCluster, StaticPodProtection, RestoredConfiguration, ChangedSince, UnfinishedChange,
	ComponentProbe,
}

// Ignored reports whether a check's errors count as warnings. ignore has names in upper or lower case; "all" stands for every
// check that doesn't guard data or access.
func Ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(s string) bool {
		return strings.EqualFold(s, name) || strings.EqualFold(s, "all") && !slices.Contains(guards, name)
	})
}

// Ignoring is the flag that ignores these checks.
func Ignoring(names ...string) string { return "--ignore-preflight-errors=" + strings.Join(names, ",") }

// HowToIgnore is the advice to ignore these findings by name; empty if any of them is final.
func HowToIgnore(found []Finding) string {
	var names, guarding []string
	for _, f := range found {
		switch {
		case f.Final:
			return ""
		case slices.Contains(names, f.Name):
			continue
		case slices.Contains(guards, f.Name):
			guarding = append(guarding, f.Name)
		}
		names = append(names, f.Name)
	}
	flag := Ignoring(names...)
	if len(guarding) > 0 {
		return "to continue regardless, use " + flag + "; `all` does not cover " + strings.Join(guarding, " and ")
	}
	return "to continue regardless, add " + flag
}
