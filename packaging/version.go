// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// described matches the Makefile's version from `git describe`: of a tag, of commits after a tag, or of a commit in a history
// without tags, such as v0.0.0-2ede596.
var described = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))??(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)

// packageVersion returns a version for deb and rpm. Their order puts "~" before a release and "+" after it, and this puts commits
// without a tag in the order of their dates:
//
//	v1.2.3              1.2.3
//	v1.2.3-rc.1         1.2.3~rc.1
//	v1.2.3-5-g2ede596   1.2.3+5.g2ede596
//	v0.0.0-2ede596      0.0.0~git20261123223238.2ede596
func packageVersion(version string, date time.Time) (string, error) {
	parts := described.FindStringSubmatch(version)
	if parts == nil {
		return "", errors.Errorf("-version=%q: must be like v1.2.3, v1.2.3-rc.1 or v0.0.0-2ede596", version)
	}
	release, before, commits, commit, dirty := parts[1], parts[2], parts[3], parts[4], parts[5]
	if release == "0.0.0" && before != "" {
		before = "git" + date.UTC().Format("20060102150405") + "." + before
	}
	var after []string
	if commits != "" {
		after = append(after, commits, commit)
	}
	if dirty != "" {
		after = append(after, "dirty")
	}
	if before != "" {
		release += "~" + before
	}
	if len(after) > 0 {
		release += "+" + strings.Join(after, ".")
	}
	return release, nil
}
