// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"net/netip"
	"time"

	"github.com/pkg/errors"
)

// ErrNotInPlan is the answer to a question that a dry run does not ask, because
// it would send packets or write to a disk.
var ErrNotInPlan = errors.New("a dry run does not ask this")

// Probe implements Remote: what a run waits for has happened.
func (o *overlay) Probe(context.Context, Probe) error { return nil }

// Fetch implements Remote.
func (o *overlay) Fetch(context.Context, Probe) ([]byte, error) { return nil, ErrNotInPlan }

// Date implements Remote.
func (o *overlay) Date(context.Context, Probe) (time.Time, error) { return time.Time{}, ErrNotInPlan }

// LookupHost implements Remote.
func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, ErrNotInPlan
}

// ProbeWrite implements DiskTester.
func (o *overlay) ProbeWrite(string) error { return ErrNotInPlan }

// SyncTimes implements DiskTester.
func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, ErrNotInPlan
}
