// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// ErrNotInPlan is the answer to a question that a dry run does not ask, because
// it would touch a disk or the network.
var ErrNotInPlan = errors.New("a dry run does not ask this")

// ProbeWrite implements Disks.
func (o *overlay) ProbeWrite(string) error { return ErrNotInPlan }

// SyncTimes implements Disks.
func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, ErrNotInPlan
}

// LookupHost implements Facts.
func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, ErrNotInPlan
}

// Date implements Facts.
func (o *overlay) Date(context.Context, Probe) (time.Time, error) {
	return time.Time{}, ErrNotInPlan
}
