// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Probe succeeds: a plan assumes that a run's waits do.
func (o *overlay) Probe(context.Context, host.Probe) error { return nil }

func (o *overlay) Fetch(context.Context, host.Probe) ([]byte, error) { return nil, host.ErrNotInPlan }

func (o *overlay) Date(context.Context, host.Probe) (time.Time, error) {
	return time.Time{}, host.ErrNotInPlan
}

func (o *overlay) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return nil, host.ErrNotInPlan
}

func (o *overlay) ProbeWrite(string) error { return host.ErrNotInPlan }

func (o *overlay) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return nil, host.ErrNotInPlan
}
