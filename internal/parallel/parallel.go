// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package parallel runs a function concurrently for each element of a list (Map), and returns the results in the list's order.
package parallel

import (
	"cmp"
	"sync"
)

// Map returns f's result for each element of a list, in the list's order. At most limit calls run at the same time; 0 is no limit.
func Map[T, R any](list []T, limit int, f func(T) R) []R {
	results, slots := make([]R, len(list)), make(chan struct{}, cmp.Or(limit, len(list)))
	var group sync.WaitGroup
	for i := range list {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			results[i] = f(list[i])
		})
	}
	group.Wait()
	return results
}
