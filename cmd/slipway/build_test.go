// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"
)

// TestBuildOf covers Go's record of builds the Makefile didn't stamp.
func TestBuildOf(t *testing.T) {
	const commit = "9b798a06399f95e09b030fc13251febc13937e81"
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: commit},
			{Key: "vcs.time", Value: "2026-05-04T10:00:00Z"}, {Key: "vcs.modified", Value: modified}}
	}
	tests := []struct {
		name, version string
		settings      []debug.BuildSetting
		want          build
	}{
		{"nothing", "", nil, build{unknownVersion, "", unknownDate, false}},
		{"no version control", "(devel)", nil, build{unknownVersion, "", unknownDate, false}},
		{"an older Go in a checkout", "(devel)", settings("true"), build{"v0.0.0-9b798a06399f", commit, "2026-05-04T10:00:00Z", true}},
		{"a checkout", "v0.0.0-20260504100000-9b798a06399f", settings("false"), build{"v0.0.0-20260504100000-9b798a06399f", commit, "2026-05-04T10:00:00Z", false}},
		{"a changed checkout", "v1.2.3+dirty", settings("true"), build{"v1.2.3+dirty", commit, "2026-05-04T10:00:00Z", true}},
		{"@v1.2.3", "v1.2.3", nil, build{"v1.2.3", "", unknownDate, false}},
		{"@main", "v0.0.0-20260504100000-9b798a06399f", nil, build{"v0.0.0-20260504100000-9b798a06399f", "9b798a06399f", "2026-05-04T10:00:00Z", false}},
		{"@main after a tag", "v1.2.4-0.20260504100000-9b798a06399f", nil, build{"v1.2.4-0.20260504100000-9b798a06399f", "9b798a06399f", "2026-05-04T10:00:00Z", false}},
	}
	for _, tt := range tests {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.version}, Settings: tt.settings}
		if got := buildOf(info); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
