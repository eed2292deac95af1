// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// Timeline passes a run's messages on, and records when each phase ran.
type Timeline struct {
	UI
	*spans
}

type spans struct {
	mu    sync.Mutex
	began time.Time
	all   []*span
}

// span is the time of one phase, from the start of the run.
type span struct {
	path       string
	start, end time.Duration
	ended      bool
	err        string
	lane       int // from 0; phases that overlap have different lanes
}

// NewTimeline records phases on their way to in.
func NewTimeline(in UI) *Timeline { return &Timeline{UI: in, spans: &spans{began: time.Now()}} }

func (t *Timeline) Start(phase string) (UI, func(error)) {
	in, end := t.UI.Start(phase)
	s := t.open(phase)
	return &Timeline{UI: in, spans: t.spans}, func(err error) {
		t.close(s, err)
		end(err)
	}
}

func (s *spans) open(phase string) *span {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := &span{path: phase, start: time.Since(s.began)}
	s.all = append(s.all, opened)
	return opened
}

func (s *spans) close(closed *span, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	closed.end, closed.ended = time.Since(s.began), true
	if err != nil {
		closed.err = err.Error()
	}
}

// phases returns the phases without children as they began, each in the first free lane. An unfinished phase lasts until now.
func (s *spans) phases() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []span
	for _, one := range s.all {
		isParent := slices.ContainsFunc(s.all, func(other *span) bool { return strings.HasPrefix(other.path, one.path+"/") })
		if isParent {
			continue
		}
		copied := *one
		if !copied.ended {
			copied.end = time.Since(s.began)
		}
		list = append(list, copied)
	}
	sort.SliceStable(list, func(a, b int) bool { return list[a].start < list[b].start })
	var busyUntil []time.Duration // by lane
	for i := range list {
		lane := slices.IndexFunc(busyUntil, func(until time.Duration) bool { return until <= list[i].start })
		if lane < 0 {
			lane, busyUntil = len(busyUntil), append(busyUntil, 0)
		}
		list[i].lane, busyUntil[lane] = lane, list[i].end
	}
	return list
}

// traceEvent is an entry of the Trace Event Format, for chrome://tracing and https://ui.perfetto.dev, in microseconds.
type traceEvent struct {
	Name      string            `json:"name"`
	Category  string            `json:"cat,omitempty"`
	Type      string            `json:"ph"` // X: a span; M: the name of a row
	Start     int64             `json:"ts"`
	Duration  int64             `json:"dur,omitempty"`
	Process   int               `json:"pid"`
	Lane      int               `json:"tid"`
	Arguments map[string]string `json:"args,omitempty"`
}

// Trace returns the run as Chrome trace events: one row for each lane.
func (t *Timeline) Trace() ([]byte, error) {
	trace := struct {
		Events []traceEvent `json:"traceEvents"`
		Unit   string       `json:"displayTimeUnit"`
	}{Events: []traceEvent{}, Unit: "ms"}
	lanes := 0
	for _, s := range t.phases() {
		for ; lanes <= s.lane; lanes++ {
			trace.Events = append(trace.Events, traceEvent{Name: "thread_name", Type: "M", Process: 1, Lane: lanes + 1,
				Arguments: map[string]string{"name": fmt.Sprintf("lane %d", lanes+1)}})
		}
		e := traceEvent{Name: s.path, Category: topLevel(s.path), Type: "X", Process: 1, Lane: s.lane + 1,
			Start: s.start.Microseconds(), Duration: max(1, (s.end - s.start).Microseconds())}
		if s.err != "" {
			e.Arguments = map[string]string{"error": s.err}
		}
		trace.Events = append(trace.Events, e)
	}
	return json.Marshal(trace)
}

// barWidth is the width of a whole run, in characters.
const barWidth = 40

// Bars draws a bar for each phase, to show when it ran and for how long.
func (t *Timeline) Bars(w io.Writer) error {
	list := t.phases()
	var total time.Duration
	longest := 0
	for _, s := range list {
		total, longest = max(total, s.end), max(longest, len(s.path))
	}
	var b strings.Builder
	for _, s := range list {
		from := min(barWidth-1, int(int64(s.start)*barWidth/int64(max(1, total))))
		to := max(from+1, int(int64(s.end)*barWidth/int64(max(1, total))))
		mark := ""
		if s.err != "" {
			mark = " failed"
		}
		fmt.Fprintf(&b, "%-*s |%s%s%s| %6.2fs%s\n", longest, s.path,
			strings.Repeat(" ", from), strings.Repeat("█", to-from), strings.Repeat(" ", barWidth-to), (s.end - s.start).Seconds(), mark)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
