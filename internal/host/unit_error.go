// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"strings"

	godbus "github.com/godbus/dbus/v5"
	"github.com/pkg/errors"
)

// Results of a unit's job in addition to systemd's own words, such as failed,
// timeout, canceled, dependency and skipped.
const (
	ResultNotFound = "not-found" // the unit does not exist
	ResultMasked   = "masked"    // the unit is masked
	ResultDenied   = "denied"    // the caller is not allowed to
	ResultUnknown  = "unknown"   // the job did not end before the deadline
	ResultRefused  = "refused"   // systemd did not queue the job; Err says why
)

// ErrNoSystemd is the answer of every call to systemd on a host that does not run
// it, such as a container in which an image is built.
var ErrNoSystemd = errors.New("no init system was found (" + bootedDir + " is missing)")

// BusError says that systemd runs but cannot be reached.
type BusError struct{ Err error }

func (e *BusError) Error() string {
	return fmt.Sprintf("cannot reach systemd over D-Bus: %v: "+
		"Slipway needs systemd as this host's init; check with `systemctl status`, and run as root", e.Err)
}

func (e *BusError) Unwrap() error { return e.Err }

// UnitError is a request about a unit that systemd did not fulfil.
type UnitError struct {
	Unit   string    // kubelet.service
	Job    string    // start, stop, restart, enable
	Result string    // systemd's word for the job's end, or a Result constant
	State  UnitState // of the unit afterwards, if it is known
	Err    error     // the cause, if there is one
}

func (e *UnitError) Unwrap() error { return e.Err }

func (e *UnitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.Job, e.Unit)
	switch e.Result {
	case ResultNotFound:
		b.WriteString("systemd does not know this unit; install the package that contains it")
	case ResultMasked:
		fmt.Fprintf(&b, "the unit is masked; allow it with `systemctl unmask %s`", e.Unit)
	case ResultDenied:
		b.WriteString("systemd refused; run as root")
	case ResultUnknown:
		fmt.Fprintf(&b, "the job did not finish in time (%v); see `systemctl status %s`", e.Err, e.Unit)
	case ResultRefused:
		fmt.Fprintf(&b, "systemd refused: %v; see `systemctl status %s`", e.Err, e.Unit)
	case "canceled":
		b.WriteString("another job replaced it, so another program starts or stops this unit: see `systemctl list-jobs`")
	case "dependency":
		b.WriteString("a unit that it depends on failed; see `systemctl --failed`")
	default:
		fmt.Fprintf(&b, "the job ended with result %q%s; see `journalctl -u %s`", e.Result, e.State.evidence(), e.Unit)
	}
	return b.String()
}

// evidence returns a unit's state in parentheses.
func (s UnitState) evidence() string {
	if s.ActiveState == "" {
		return ""
	}
	if s.Result == "" || s.Result == "success" {
		return fmt.Sprintf(" (unit is %s)", s.ActiveState)
	}
	return fmt.Sprintf(" (unit is %s, result %s)", s.ActiveState, s.Result)
}

// unitFailure turns the error of a call about a unit into a *UnitError, or into a
// *BusError if systemd did not answer.
func unitFailure(unit, job string, err error) error {
	var answer godbus.Error
	switch {
	case errors.As(err, &answer):
		return &UnitError{Unit: unit, Job: job, Result: resultOf(answer.Name), Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &UnitError{Unit: unit, Job: job, Result: ResultUnknown, Err: err}
	default:
		return &BusError{err}
	}
}

// resultOf maps the names of systemd's D-Bus errors to results.
func resultOf(name string) string {
	switch name {
	case "org.freedesktop.systemd1.NoSuchUnit",
		"org.freedesktop.systemd1.LoadFailed",
		"org.freedesktop.DBus.Error.FileNotFound",
		"System.Error.ENOENT":
		return ResultNotFound
	case "org.freedesktop.systemd1.UnitMasked":
		return ResultMasked
	case "org.freedesktop.DBus.Error.AccessDenied",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		"org.freedesktop.PolicyKit1.Error.NotAuthorized":
		return ResultDenied
	}
	return ResultRefused
}
