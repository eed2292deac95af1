// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// syncGoal is etcd's limit for a disk at the 99th percentile:
	// https://etcd.io/docs/v3.5/op-guide/hardware/#disks
	syncGoal = 10 * time.Millisecond
	// syncLimit bounds the measurement.
	syncLimit = 500 * time.Millisecond
)

// etcdDisk measures the sync before etcd acknowledges a write: a slow disk causes most leader elections and timeouts of small
// clusters.
func etcdDisk(dataDir string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		dir := existingDir(h, dataDir)
		ctx, cancel := context.WithTimeout(ctx, syncLimit)
		defer cancel()
		took, err := h.SyncTimes(ctx, dir)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("how fast the disk of %s is", dir)
		case err != nil && h.EffectiveUID() != 0:
			return skip("did not measure the disk of %s: this needs root", dir)
		case err != nil:
			return warn("cannot measure the disk of %s: %v", dir, err).remedy("check that the file system is writable and has free space")
		}
		p99 := percentile(took, 0.99)
		if p99 <= syncGoal {
			return nil
		}
		return warn("the disk of %s takes %s to sync a write (99th percentile of %d), but etcd needs at most %s to answer quickly and avoid leader elections under load",
			dir, p99.Round(100*time.Microsecond), len(took), syncGoal).
			remedy("give etcd a faster disk (etcd.local.dataDir), or stop what else writes to this one")
	}
}

// percentile uses the nearest rank.
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}
