// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
)

const (
	// lookInterval is how often a watch looks, lookTime how long a look may take if something hangs.
	lookInterval = time.Second
	lookTime     = 8 * time.Second
)

// Watch looks at the host every second during a wait, but not at once, as most waits are short. It returns as soon as it knows a
// cause that won't pass by itself, and nothing if ctx ends first. Without Target.Since, it uses Beginning.
func Watch(ctx context.Context, h View, t Target) []fault.Finding {
	t.Waiting = true
	began := h.Now()
	t.began = began
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	seen := map[string]time.Time{}
	var said journal
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		limited, cancel := context.WithTimeout(ctx, lookTime)
		if t.Since.IsZero() {
			t.Since = Beginning(limited, h, began)
		}
		found := look(limited, h, t, &said)
		late := limited.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case late: // a look that ran out of time may have missed facts
			continue
		}
		if lasting := judge(seen, found, h.Now()); len(lasting) > 0 {
			return findings(lasting)
		}
	}
}

// recent is how far back a wait looks: the phases before it were writing their files then.
const recent = 10 * time.Second

// Beginning returns since when the kubelet's log counts in a wait: an earlier process may have had another configuration.
func Beginning(ctx context.Context, h View, began time.Time) time.Time {
	since := began.Add(-recent)
	if unit, err := h.Unit(ctx, kubeletService); err == nil && unit.ActiveSince.After(since) {
		return unit.ActiveSince
	}
	return since
}

// judge returns the findings that have lasted as long as they must. seen holds the time each was first found.
func judge(seen map[string]time.Time, found []symptom, now time.Time) []symptom {
	there := map[string]bool{}
	var lasting []symptom
	for _, f := range found {
		there[f.key()] = true
		first, known := seen[f.key()]
		if !known {
			first = now
			seen[f.key()] = now
		}
		if f.lasts != never && now.Sub(first) >= f.lasts {
			lasting = append(lasting, f)
		}
	}
	for key := range seen {
		if !there[key] {
			delete(seen, key)
		}
	}
	return lasting
}
