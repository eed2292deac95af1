// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"regexp"
	"runtime/debug"
	"strings"
)

// Stamped by the linker; see the Makefile.
var (
	slipwayVersion string
	gitCommit      string
	buildDate      string
)

type build struct {
	version, commit, date string
	modified              bool
}

const (
	unknownVersion = "v0.0.0-unknown"
	unknownDate    = "1970-01-01T00:00:00Z"
)

// thisBuild reads the linker's stamp, or else Go's own record.
func thisBuild() build {
	if slipwayVersion != "" {
		return build{slipwayVersion, gitCommit, cmp.Or(buildDate, unknownDate), strings.HasSuffix(slipwayVersion, "-dirty")}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

// pseudoVersion matches a version that ends with a commit's time and first digits.
const pseudoVersion = `[.-](\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)-([0-9a-f]{12})(?:\+.*)?$`

// buildOf reads the record of `go build` and `go install`: a checkout's commit, or a downloaded module's version, which is a tag
// or ends with a commit.
func buildOf(info *debug.BuildInfo) build {
	b := build{version: info.Main.Version, date: unknownDate}
	if found := regexp.MustCompile(pseudoVersion).FindStringSubmatch(b.version); found != nil {
		b.commit = found[7]
		b.date = found[1] + "-" + found[2] + "-" + found[3] + "T" + found[4] + ":" + found[5] + ":" + found[6] + "Z"
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.commit = setting.Value
		case "vcs.time":
			b.date = setting.Value
		case "vcs.modified":
			b.modified = setting.Value == "true"
		}
	}
	if b.version == "" || b.version == "(devel)" {
		b.version = unknownVersion
		if b.commit != "" {
			b.version = "v0.0.0-" + b.commit[:min(12, len(b.commit))]
		}
	}
	return b
}

func (b build) treeState() string {
	if b.modified {
		return "dirty"
	}
	return "clean"
}
