// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"time"

	"github.com/pkg/errors"
)

// KubeletUnit is the kubelet's unit in the distributions' packages.
const KubeletUnit = "kubelet.service"

// UnitDirs are systemd's directories of units and drop-ins. A file hides files of its name in later ones: systemd.unit(5). On most
// hosts, /lib is a link to /usr/lib.
func UnitDirs() []string {
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// UnitState is a unit's state, in systemd's own words.
type UnitState struct {
	LoadState     string // loaded, not-found, masked, ...
	ActiveState   string // active, activating, failed, inactive, ...
	SubState      string // running, auto-restart, dead, ...
	UnitFileState string // enabled, disabled, masked, ...; empty if not loaded
	Result        string // success, exit-code, ...
	Restarts      uint32 // automatic restarts so far
	MainPID       uint32
	ActiveSince   time.Time // zero if never
	// Fragment is the unit's file, Program the path of the program it starts; empty if it has none.
	Fragment, Program string
	// Replaced reports whether the running program's file was replaced since it started.
	Replaced bool
	// Current reports whether systemd knows the unit's files as they are now: a reload would change nothing for this unit.
	Current bool
}

// UnitOrder is an order to systemd about one unit, with the order's effect.
type UnitOrder struct {
	Job  string // in systemd's words
	Verb Verb   // in a plan; empty if nothing lasts of the order
	// FileState and ActiveState are the unit's UnitFileState and ActiveState afterwards; empty if they stay.
	FileState, ActiveState string
}

// The orders. Each has all fields, so an order without a plan doesn't compile. EnableUnit, DisableUnit, MaskUnit and UnmaskUnit
// leave a unit alone that's already in that state. A masked unit can't be started by anything.
var (
	EnableUnit  = UnitOrder{"enable", Enable, "enabled", ""}
	DisableUnit = UnitOrder{"disable", Disable, "disabled", ""}
	MaskUnit    = UnitOrder{"mask", Mask, "masked", ""}
	UnmaskUnit  = UnitOrder{"unmask", Unmask, "static", ""}
	StartUnit   = UnitOrder{"start", Start, "", "active"}
	StopUnit    = UnitOrder{"stop", Stop, "", "inactive"}
	RestartUnit = UnitOrder{"restart", Restart, "", "active"}
	// SuspendUnit stops a unit's main process where it is (SIGSTOP). KillUnit ends it, suspended or not, without a chance to do
	// anything (SIGKILL). systemd may start the unit again: StopUnit prevents that.
	SuspendUnit = UnitOrder{"suspend", "", "", ""}
	KillUnit    = UnitOrder{"kill", "", "", ""}
)

// Needed reports whether the order changes anything for a unit whose UnitFileState is now.
func (o UnitOrder) Needed(now string) bool {
	switch o {
	case DisableUnit:
		return now == EnableUnit.FileState
	case UnmaskUnit:
		return now == MaskUnit.FileState
	}
	return now != o.FileState
}

// JournalEntry is one line logged by a unit, or by systemd about it.
type JournalEntry struct {
	Time time.Time
	// Program is the logging program, such as kubelet or systemd.
	Program string
	Message string
}

// ErrNoSystemd answers every call to systemd on a host that doesn't run it, such as a container in which an image is built:
// docs/design/no-systemd.md.
var ErrNoSystemd = errors.New("no init system was found (/run/systemd/system is missing)")

// UnitName completes a name like systemctl does.
func UnitName(name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return name + ".service"
}
