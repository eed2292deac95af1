// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"time"

	"github.com/pkg/errors"
)

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

// JournalEntry is one line logged by a unit, or by systemd about it.
type JournalEntry struct {
	Time time.Time
	// Program is the logging program, such as kubelet or systemd.
	Program string
	Message string
}

// Results of a unit's job, besides systemd's own words such as failed, timeout, canceled, dependency and skipped.
const (
	ResultNotFound = "not-found" // the unit doesn't exist
	ResultMasked   = "masked"    // the unit is masked
	ResultDenied   = "denied"    // the caller isn't allowed to
	ResultUnknown  = "unknown"   // the job didn't end before the deadline
	ResultRefused  = "refused"   // systemd didn't queue the job; Err says why
)

// ErrNoSystemd answers every call to systemd on a host that doesn't run it, such as a container in which an image is built.
var ErrNoSystemd = errors.New("no init system was found (/run/systemd/system is missing)")

// BusError reports that systemd runs but can't be reached.
type BusError struct{ Err error }

func (e *BusError) Error() string {
	return fmt.Sprintf("cannot reach systemd over D-Bus: %v", e.Err)
}

func (e *BusError) Unwrap() error { return e.Err }

// Remedy returns the fix, see package fault.
func (e *BusError) Remedy() string {
	return "Slipway needs systemd as this host's init: check it with `systemctl status`, and run the command as root"
}

// UnitError is a request about a unit that systemd didn't fulfil.
type UnitError struct {
	Unit   string    // kubelet.service
	Job    string    // start, stop, restart, enable
	Result string    // systemd's word for the job's end, or a Result constant
	State  UnitState // of the unit afterwards, if known
	Err    error     // the cause, if any
}

func (e *UnitError) Unwrap() error { return e.Err }

func (e *UnitError) Error() string {
	reason, _ := e.explain()
	return fmt.Sprintf("%s %s: %s", e.Job, e.Unit, reason)
}

// Remedy returns the fix, see package fault.
func (e *UnitError) Remedy() string {
	_, fix := e.explain()
	return fix
}

func (e *UnitError) explain() (reason, fix string) {
	switch e.Result {
	case ResultNotFound:
		return "systemd does not know this unit", "install the package that contains it"
	case ResultMasked:
		return "the unit is masked", fmt.Sprintf("unmask it: `systemctl unmask %s`", e.Unit)
	case ResultDenied:
		return "systemd refused", "run the command as root"
	case ResultUnknown:
		return fmt.Sprintf("the job did not finish in time (%v)", e.Err), fmt.Sprintf("see `systemctl status %s`", e.Unit)
	case ResultRefused:
		return fmt.Sprintf("systemd refused: %v", e.Err), fmt.Sprintf("see `systemctl status %s`", e.Unit)
	case "canceled":
		return "another job replaced it, so another program starts or stops this unit", "see `systemctl list-jobs`"
	case "dependency":
		return "a unit that it depends on failed", "see `systemctl --failed`"
	}
	return fmt.Sprintf("the job ended with result %q%s", e.Result, e.State.evidence()), fmt.Sprintf("see `journalctl -u %s`", e.Unit)
}

func (s UnitState) evidence() string {
	if s.ActiveState == "" {
		return ""
	}
	if s.Result == "" || s.Result == "success" {
		return fmt.Sprintf(" (unit is %s)", s.ActiveState)
	}
	return fmt.Sprintf(" (unit is %s, result %s)", s.ActiveState, s.Result)
}

// UnitName completes a name like systemctl does.
func UnitName(name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	return name + ".service"
}
