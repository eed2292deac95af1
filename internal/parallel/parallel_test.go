// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"slices"
	"sync/atomic"
	"testing"
)

func TestMap(t *testing.T) {
	list := []int{1, 2, 3, 4, 5, 6, 7}
	for _, limit := range []int{0, 1, 3, 100} {
		var running, most atomic.Int32
		got := Map(list, limit, func(n int) int {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			return n * n
		})
		if !slices.Equal(got, []int{1, 4, 9, 16, 25, 36, 49}) || limit > 0 && int(most.Load()) > limit {
			t.Errorf("at most %d: %v, %d at the same time", limit, got, most.Load())
		}
	}
	if got := Map(nil, 0, func(n int) int { return n }); len(got) != 0 {
		t.Error(got)
	}
}
