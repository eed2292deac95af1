// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Directories for units of a bundle's programs, in reverse order of precedence: systemd.unit(5).
const (
	unitDir      = "/usr/local/lib/systemd/system"
	earlyUnitDir = "/etc/systemd/system"
)

// unitDirOf returns the directory for a bundle's units on this host. systemd decides at boot what to start, before it mounts
// anything but the root file system and /usr, and doesn't look again. So if /usr/local, or a directory in it, is mounted or a link,
// as on openSUSE and on image-based systems, a unit there would never start: https://github.com/systemd/systemd/issues/8307
func unitDirOf(h host.PathReader) string {
	for dir := unitDir; dir != "/usr"; dir = filepath.Dir(dir) {
		if apart, err := h.SurvivesRemoval(dir); apart || err != nil {
			return earlyUnitDir
		}
	}
	return unitDir
}

// unitPaths are all paths at which a bundle's unit may be. Earlier releases only had the first.
func unitPaths(unit string) []string {
	return []string{filepath.Join(unitDir, unit), filepath.Join(earlyUnitDir, unit)}
}

// isBundlesPlace reports whether a unit's file is where a bundle's is on this host. An operator's may be there, too.
func isBundlesPlace(h host.PathReader, file, unit string) bool {
	return file == filepath.Join(unitDir, unit) || file == filepath.Join(unitDirOf(h), unit)
}

// broughtUnit reports whether a bundle's unit is on this host.
func broughtUnit(h host.PathReader, unit string) bool {
	return slices.ContainsFunc(unitPaths(unit), h.CreatedBySlipway)
}
