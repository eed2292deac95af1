// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// journalEntries is how many entries a look reads: a kubelet waiting for its API server logs ten lines a second.
	journalEntries = 1500
	// keptEntries is how many of them the journal remembers.
	keptEntries = 3000
)

// journal collects the log of the kubelet's unit. A look reads only new entries, and keeps repeated lines once.
type journal struct {
	entries []entry
	newest  time.Time
	last    time.Time // of the last read that succeeded, by a clock that nobody sets
	err     error     // of the last read
}

// entry is a line of the journal, and the time it was first logged.
type entry struct {
	host.JournalEntry
	first time.Time
}

// read appends the entries since the last call or, on the first call, since the given time. It skips entries it can't read.
func (j *journal) read(ctx context.Context, h View, since time.Time) {
	if !j.newest.IsZero() {
		since = j.newest.Add(time.Microsecond)
	}
	asked, now := time.Now(), h.Now()
	if since.After(now) {
		since = j.afterStep(now)
		j.newest = since
	}
	fresh, err := h.Journal(ctx, kubeletService, since, journalEntries)
	if j.err = err; err != nil {
		return
	}
	if j.last = asked; len(fresh) == 0 {
		return
	}
	if j.newest = fresh[len(fresh)-1].Time; j.newest.After(now) { // from before a step of the clock, for example
		j.newest = now
	}
	known := j.entries // some of them are read again after the clock was set back
	for _, e := range fresh {
		if !slices.ContainsFunc(known, func(old entry) bool { return old.JournalEntry == e }) {
			j.entries = append(j.entries, entry{e, e.Time})
		}
	}
	j.entries = withoutRepeats(j.entries)
	j.entries = j.entries[max(0, len(j.entries)-keptEntries):]
}

// afterStep returns since when entries may be new, by a clock that somebody has set back to now: some of them are older than now.
func (j *journal) afterStep(now time.Time) time.Time {
	if j.last.IsZero() {
		return now.Add(-recent)
	}
	return now.Add(-time.Since(j.last) - time.Second)
}

// withoutRepeats keeps only the newest of repeated lines. systemd's lines are counted later, so it keeps them all.
func withoutRepeats(entries []entry) []entry {
	at := map[string]int{}
	var kept []entry
	for _, e := range slices.Backward(entries) {
		words := normalize(e.Message)
		if i, again := at[words]; again && e.Program != "systemd" {
			kept[i].first = e.first
			continue
		}
		at[words] = len(kept)
		kept = append(kept, e)
	}
	slices.Reverse(kept)
	return kept
}

// joined joins the lines of multi-line messages. A repeated message may have lost some of its lines.
func joined(entries []entry) []entry {
	var out []entry
	last := map[string]int{} // of each program
	for _, e := range entries {
		if i, known := last[e.Program]; known && continues(out[i].Message, e.Message) {
			out[i].Message += " " + strings.TrimSpace(e.Message)
			continue
		}
		last[e.Program] = len(out)
		out = append(out, e)
	}
	return out
}

// continues reports whether a line continues a message. Kubernetes' components write an error with several lines as `err=<`, each
// line after a tab, and ` >`.
func continues(message, line string) bool {
	_, value, several := strings.Cut(message, "=<")
	return several && !strings.HasSuffix(value, " >") && (strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " "))
}
