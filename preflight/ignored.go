// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
)

// These checks guard data and access. They can be ignored only by name: scripts pass `all` for things like too little memory, and
// that must not cost a cluster its quorum or its Secrets. An upgrade's StaticPodProtection can't be ignored at all.
const (
	EtcdQuorum          = "EtcdQuorum"
	EtcdOtherMembers    = "EtcdOtherMembers"
	StaticPodProtection = "StaticPodProtection"
)

func coveredByAll(name string) bool {
	return !slices.Contains([]string{EtcdQuorum, EtcdOtherMembers, StaticPodProtection}, name)
}

// Ignored reports whether a check's errors count as warnings.
func Ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(s string) bool {
		return strings.EqualFold(s, name) || strings.EqualFold(s, "all") && coveredByAll(name)
	})
}

func howToIgnore(names []string) string {
	flag := "--ignore-preflight-errors=" + strings.Join(names, ",")
	if guards := slices.DeleteFunc(slices.Clone(names), coveredByAll); len(guards) > 0 {
		return "to continue regardless, use " + flag + "; `all` does not cover " + strings.Join(guards, " and ")
	}
	return "to continue regardless, add " + flag
}
