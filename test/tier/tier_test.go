// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tier

import (
	"fmt"
	"slices"
	"testing"
)

func TestSample(t *testing.T) {
	const total, n = 30, 5
	t.Setenv(Variable, "")
	t.Setenv(Seed, "a")
	first := Sample(t, n, total)
	if len(first) != n || !slices.IsSorted(first) || len(slices.Compact(slices.Clone(first))) != n {
		t.Errorf("a sample of %d: %v", n, first)
	}
	if again := Sample(t, n, total); !slices.Equal(first, again) {
		t.Errorf("the same seed chooses %v, then %v", first, again)
	}
	seen := map[int]bool{}
	for commit := range 100 {
		t.Setenv(Seed, fmt.Sprint(commit))
		for _, at := range Sample(t, n, total) {
			seen[at] = true
		}
	}
	if len(seen) != total {
		t.Errorf("100 commits cover %d of %d", len(seen), total)
	}
	if all := Sample(t, total+1, total); len(all) != total {
		t.Errorf("of %d, there are %d to choose", total, len(all))
	}
	t.Setenv(Variable, "full")
	if all := Sample(t, n, total); len(all) != total {
		t.Errorf("the full tier runs %d of %d", len(all), total)
	}
}
