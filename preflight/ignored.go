// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
)

// Checks that guard data and access. They may be ignored by their names, and `all` does not cover them: scripts say that for a
// host with too little memory, and nobody loses a quorum or every Secret in passing.
const (
	EtcdQuorum          = "EtcdQuorum"
	EtcdOtherMembers    = "EtcdOtherMembers"
	StaticPodProtection = "StaticPodProtection"
)

func coveredByAll(name string) bool {
	return !slices.Contains([]string{EtcdQuorum, EtcdOtherMembers, StaticPodProtection}, name)
}

// Ignored reports whether the errors of a check count as warnings.
func Ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(s string) bool {
		return strings.EqualFold(s, name) || strings.EqualFold(s, "all") && coveredByAll(name)
	})
}

// howToIgnore says how to continue despite the errors of checks.
func howToIgnore(names []string) string {
	flag := "--ignore-preflight-errors=" + strings.Join(names, ",")
	if guards := slices.DeleteFunc(slices.Clone(names), coveredByAll); len(guards) > 0 {
		return "to continue regardless, use " + flag + "; `all` does not cover " + strings.Join(guards, " and ")
	}
	return "to continue regardless, add " + flag
}
