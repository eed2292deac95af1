// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// These methods change nothing, so a recorder passes them on.

// Probe implements Remote.
func (r *recorder) Probe(ctx context.Context, p host.Probe) error { return r.remote.Probe(ctx, p) }

// Fetch implements Remote.
func (r *recorder) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return r.remote.Fetch(ctx, p)
}

// Date implements Remote.
func (r *recorder) Date(ctx context.Context, p host.Probe) (time.Time, error) {
	return r.remote.Date(ctx, p)
}

// LookupHost implements Remote.
func (r *recorder) LookupHost(ctx context.Context, name string) ([]netip.Addr, error) {
	return r.remote.LookupHost(ctx, name)
}

// ProbeWrite implements DiskTester: nothing of it is left.
func (r *recorder) ProbeWrite(dir string) error { return r.writer.ProbeWrite(dir) }

// SyncTimes implements DiskTester: nothing of it is left.
func (r *recorder) SyncTimes(ctx context.Context, dir string) ([]time.Duration, error) {
	return r.writer.SyncTimes(ctx, dir)
}
