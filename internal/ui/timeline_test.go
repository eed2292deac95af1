// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
)

// TestTimeline runs two phases below a third at the same time, and a fourth that fails.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		line := NewTimeline(NewLines(&said, &said))
		_, endCerts := line.Start("certs")
		_, endCA := line.Start("certs/ca")
		time.Sleep(time.Second)
		in, endSA := line.Start("certs/sa")
		in.Printf("hello")
		time.Sleep(time.Second)
		endCA(nil)
		time.Sleep(time.Second)
		endSA(nil)
		endCerts(nil)
		_, endEtcd := line.Start("etcd")
		time.Sleep(time.Second)
		endEtcd(errors.New("no space"))
		if said.String() != "[certs] hello\n" {
			t.Errorf("said %q", said.String())
		}
		wantTrace(t, line)
		wantBars(t, line)
	})
}

func wantTrace(t *testing.T, line *Timeline) {
	t.Helper()
	data, err := line.Trace()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		TraceEvents []map[string]any `json:"traceEvents"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	row := func(lane int) m {
		return m{"name": "thread_name", "ph": "M", "pid": 1., "tid": float64(lane), "ts": 0., "args": m{"name": "lane " + string(rune('0'+lane))}}
	}
	want := []map[string]any{
		row(1), {"name": "certs/ca", "cat": "certs", "ph": "X", "pid": 1., "tid": 1., "ts": 0., "dur": 2e6},
		row(2), {"name": "certs/sa", "cat": "certs", "ph": "X", "pid": 1., "tid": 2., "ts": 1e6, "dur": 2e6},
		{"name": "etcd", "cat": "etcd", "ph": "X", "pid": 1., "tid": 1., "ts": 3e6, "dur": 1e6, "args": m{"error": "no space"}},
	}
	if diff := cmp.Diff(want, got.TraceEvents); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

func wantBars(t *testing.T, line *Timeline) {
	t.Helper()
	var b bytes.Buffer
	if err := line.Bars(&b); err != nil {
		t.Fatal(err)
	}
	bar := func(from, to int) string {
		return "|" + strings.Repeat(" ", from) + strings.Repeat("█", to-from) + strings.Repeat(" ", 40-to) + "|"
	}
	want := "certs/ca " + bar(0, 20) + "   2.00s\n" +
		"certs/sa " + bar(10, 30) + "   2.00s\n" +
		"etcd     " + bar(30, 40) + "   1.00s failed\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}

// TestTimelineOfNothing: a run that failed before its first phase.
func TestTimelineOfNothing(t *testing.T) {
	line := NewTimeline(nil)
	data, err := line.Trace()
	if want := `{"traceEvents":[],"displayTimeUnit":"ms"}`; string(data) != want || err != nil {
		t.Errorf("trace %s, %v", data, err)
	}
	if err := line.Bars(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
}
