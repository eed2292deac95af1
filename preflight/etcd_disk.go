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
	// syncGoal is what etcd asks of a disk at the 99th percentile:
	// https://etcd.io/docs/v3.5/op-guide/hardware/#disks
	syncGoal = 10 * time.Millisecond
	// syncLimit bounds the measurement.
	syncLimit = 500 * time.Millisecond
)

// etcdDisk times what etcd does before it answers any write: a slow disk is
// behind most elections and timeouts of small clusters.
func etcdDisk(dataDir string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		dir := folderOf(h, dataDir)
		ctx, cancel := context.WithTimeout(ctx, syncLimit)
		defer cancel()
		took, err := h.SyncTimes(ctx, dir)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("how fast the disk of %s is", dir)
		case err != nil && h.EffectiveUID() != 0:
			return skip("the disk of %s is measured as root only", dir)
		case err != nil:
			return warn("%v", err)
		}
		p99 := percentile(took, 0.99)
		if p99 <= syncGoal {
			return nil
		}
		return warn("the disk of %s takes %s to sync a write (99th percentile of %d), and etcd wants at most %s: expect slow answers and elections under load; give etcd a faster disk (etcd.local.dataDir), or end what else writes to this one",
			dir, p99.Round(100*time.Microsecond), len(took), syncGoal)
	}
}

// percentile is that of the nearest rank.
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}
