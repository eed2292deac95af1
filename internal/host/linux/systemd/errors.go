// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"

	godbus "github.com/godbus/dbus/v5"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// unitFailure turns the error of a call about a unit into a *UnitError, or into a *BusError if the connection failed.
func unitFailure(unit, job string, err error) error {
	var answer godbus.Error
	switch {
	case errors.As(err, &answer):
		return &host.UnitError{Unit: unit, Job: job, Result: resultOf(answer.Name), Err: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &host.UnitError{Unit: unit, Job: job, Result: host.ResultUnknown, Err: err}
	default:
		return &host.BusError{Err: err}
	}
}

// resultOf maps systemd's D-Bus errors to results.
func resultOf(name string) string {
	switch name {
	case "org.freedesktop.systemd1.NoSuchUnit",
		"org.freedesktop.systemd1.LoadFailed",
		"org.freedesktop.DBus.Error.FileNotFound",
		"System.Error.ENOENT":
		return host.ResultNotFound
	case "org.freedesktop.systemd1.UnitMasked":
		return host.ResultMasked
	case "org.freedesktop.DBus.Error.AccessDenied",
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
		"org.freedesktop.PolicyKit1.Error.NotAuthorized":
		return host.ResultDenied
	}
	return host.ResultRefused
}

// busFailure explains the error of a call that isn't about one unit.
func busFailure(what string, err error) error {
	if e := (godbus.Error{}); errors.As(err, &e) && resultOf(e.Name) == host.ResultDenied {
		return fault.WithRemedy(errors.Wrapf(err, "%s: systemd refused", what), "run the command as root")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.WithRemedy(errors.Wrapf(err, "%s: systemd does not answer", what), "see `systemctl status`")
	}
	return errors.Wrap(err, what)
}
