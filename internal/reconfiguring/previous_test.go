// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPreviousNote: the annotation has the last configurations, the newest first, and an earlier release's only one. It stays small
// enough for an object.
func TestPreviousNote(t *testing.T) {
	at := func(i int) time.Time { return time.Unix(int64(i), 0) }
	first, err := json.Marshal(previous{Until: at(1).UTC(), ClusterConfiguration: "0"})
	if err != nil {
		t.Fatal(err)
	}
	texts := func(note string) (all []string) {
		for _, p := range previousIn(note) {
			all = append(all, p.ClusterConfiguration)
		}
		return all
	}
	note := string(first)
	for i := 1; i <= 3; i++ {
		note = PreviousNote(note, strconv.Itoa(i), at(i), at(i+1))
	}
	list := previousIn(note)
	if got := strings.Join(texts(note), ","); got != "3,2,1,0" || !list[0].Since.Equal(at(3)) || !list[3].Since.IsZero() || !list[3].Until.Equal(at(1)) {
		t.Errorf("%s: %+v", got, list)
	}
	for i := 4; i <= 20; i++ {
		note = PreviousNote(note, strconv.Itoa(i), at(i), at(i+1))
	}
	if got := strings.Join(texts(note), ","); got != "20,19,18,17,16,15,14,13" {
		t.Errorf("%s", got)
	}
	large := strings.Repeat("a", previousBytes/3)
	for range 4 {
		note = PreviousNote(note, large, at(1), at(2))
	}
	if got := texts(note); len(note) > previousBytes || len(got) != 2 || got[0] != large {
		t.Errorf("%d texts in %d bytes", len(got), len(note))
	}
	if got := texts(PreviousNote("{", "only", at(1), at(2))); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
