// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"fmt"

	godbus "github.com/godbus/dbus/v5"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const asRoot = "run the command as root"

func seeStatus(unit string) string { return fmt.Sprintf("see `systemctl status %s`", unit) }

// unitFailure explains the error of a call about a unit.
func unitFailure(unit, job string, err error) error {
	if err == nil {
		return nil
	}
	if reason, remedy := refusal(unit, err); reason != "" {
		return fault.WithRemedy(errors.WithMessagef(err, "%s %s: %s", job, unit, reason), remedy)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return unfinished(unit, job, err)
	}
	return busError(err)
}

// unfinished is for a job that didn't end before the deadline.
func unfinished(unit, job string, err error) error {
	return fault.WithRemedy(errors.WithMessagef(err, "%s %s: the job did not finish in time", job, unit), seeStatus(unit))
}

// refusal explains systemd's D-Bus errors; reason is empty for another error.
func refusal(unit string, err error) (reason, remedy string) {
	var answer godbus.Error
	if !errors.As(err, &answer) {
		return "", ""
	}
	switch answer.Name {
	case "org.freedesktop.systemd1.NoSuchUnit",
		"org.freedesktop.systemd1.LoadFailed",
		"org.freedesktop.DBus.Error.FileNotFound",
		"System.Error.ENOENT":
		return "systemd does not know this unit", "install the package that contains it"
	case "org.freedesktop.systemd1.UnitExists",
		"org.freedesktop.DBus.Error.FileExists": // systemd replaces no file in /etc/systemd/system by a link, such as a mask
		return "a file is in the way",
			fmt.Sprintf("if it's the unit's own file, run `systemctl disable %s`; otherwise move it away. Then run the same command again", unit)
	case "org.freedesktop.systemd1.UnitMasked":
		return "the unit is masked", fmt.Sprintf("unmask it: `systemctl unmask %s`", unit)
	case "org.freedesktop.DBus.Error.AccessDenied",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		"org.freedesktop.PolicyKit1.Error.NotAuthorized":
		return "systemd refused", asRoot
	}
	return "systemd refused", seeStatus(unit)
}

// busError is for a systemd that runs but can't be reached.
func busError(err error) error {
	return fault.WithRemedy(errors.Wrap(err, "cannot reach systemd over D-Bus"),
		"Slipway needs systemd as this host's init: check it with `systemctl status`, and run the command as root")
}

// busFailure explains the error of a call that isn't about one unit.
func busFailure(what string, err error) error {
	if reason, remedy := refusal("", err); remedy == asRoot {
		return fault.WithRemedy(errors.Wrapf(err, "%s: %s", what, reason), remedy)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.WithRemedy(errors.Wrapf(err, "%s: systemd does not answer", what), "see `systemctl status`")
	}
	return errors.Wrap(err, what)
}

// jobFailure explains the result of a job, in systemd's words; state is the unit's afterwards, if it's known.
func jobFailure(unit, job, result string, state host.UnitState) error {
	reason, remedy := fmt.Sprintf("the job ended with result %q", result), fmt.Sprintf("see `journalctl -u %s`", unit)
	switch {
	case result == "canceled":
		reason, remedy = "another job replaced it, so another program starts or stops this unit", "see `systemctl list-jobs`"
	case result == "dependency":
		reason, remedy = "a unit that it depends on failed", "see `systemctl --failed`"
	case state.ActiveState == "":
	case state.Result == "" || state.Result == "success":
		reason += fmt.Sprintf(" (unit is %s)", state.ActiveState)
	default:
		reason += fmt.Sprintf(" (unit is %s, result %s)", state.ActiveState, state.Result)
	}
	return fault.New(fmt.Sprintf("%s %s: %s", job, unit, reason), remedy)
}
