// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
)

const (
	// lookInterval is the least time between two looks, restInterval the most, unless a look takes much processor time.
	lookInterval = time.Second
	restInterval = 15 * time.Second
	// lookTimeout is how long a look may take if something hangs.
	lookTimeout = 40 * time.Second
	// sayInterval is how often a long wait says what it sees.
	sayInterval = 15 * time.Second
)

// rest is the time between two looks, by how long the last one took, and how much processor time it used: 20 times as long, but at most
// restInterval, and 50 times the processor time, so that a wait takes at most 2 % of a processor.
func rest(took, used time.Duration) time.Duration {
	const times, share = 20, 50
	return max(min(max(times*took, lookInterval), restInterval), share*used)
}

// watch looks at the host during a wait, every second on a fast machine, but not at once, as most waits are short. It goes through
// the causes if something has changed since the last look, or if a cause it has found must still last. It returns as soon as it
// knows a cause that won't pass by itself, and nothing if ctx ends first. Without Target.Since, it uses Beginning.
func watch(ctx context.Context, h View, t Target, began time.Time, p *progress) []fault.Finding {
	t.Waiting = true
	t.began, t.limit = began, p.w.Limit
	defer p.saying()()
	next := time.After(lookInterval)
	seen := map[string]time.Time{}
	var said journal
	var searched time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
		start, used := time.Now(), h.CPUTime()
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		if t.Since.IsZero() {
			t.Since = beginning(limited, h, began)
		}
		said.read(limited, h, t.Since)
		s := observe(limited, h, t, said.entries)
		var found []symptom
		if p.changes(s) || len(seen) > 0 || start.Sub(searched) >= restInterval {
			found, searched = s.causes(), start
		}
		late := limited.Err() != nil
		cancel()
		next = time.After(rest(time.Since(start), h.CPUTime()-used))
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

// beginning returns since when the kubelet's log counts in a wait: an earlier process may have had another configuration.
func beginning(ctx context.Context, h View, began time.Time) time.Time {
	since := began.Add(-recent)
	if unit, err := h.Unit(ctx, kubeletService); err == nil && unit.ActiveSince.After(since) {
		return unit.ActiveSince
	}
	return since
}

// judge returns the findings that have lasted long enough. seen holds the time each was first found, except for findings that never
// end a wait.
func judge(seen map[string]time.Time, found []symptom, now time.Time) []symptom {
	there := map[string]bool{}
	var lasting []symptom
	for _, f := range found {
		if f.minDuration == never {
			continue
		}
		there[f.key()] = true
		first, known := seen[f.key()]
		if !known {
			first = now
			seen[f.key()] = now
		}
		if now.Sub(first) >= f.minDuration {
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
