// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Probe implements Remote: a plan assumes that a run's waits succeed.
func (o *overlay) Probe(context.Context, host.Probe) error { return nil }

// Fetch implements Remote.
func (o *overlay) Fetch(context.Context, host.Probe) ([]byte, error) { return nil, host.ErrNotInPlan }

// Date implements Remote.
func (o *overlay) Date(context.Context, host.Probe) (time.Time, error) {
	return time.Time{}, host.ErrNotInPlan
}

// LookupHost implements Remote.
func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, host.ErrNotInPlan
}

// ProbeWrite implements DiskTester.
func (o *overlay) ProbeWrite(string) error { return host.ErrNotInPlan }

// SyncTimes implements DiskTester.
func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, host.ErrNotInPlan
}
