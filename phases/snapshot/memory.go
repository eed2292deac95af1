// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "runtime/debug"

// leanMemory bounds what Go itself takes, in bytes, while a snapshot streams through. With the program's code and the pages of a
// database that are mapped at a time, the process takes about 50 MiB, whatever the size of the database: a control plane that has
// run out of memory needs its snapshot most.
const leanMemory = 20 << 20

// limitMemory makes the garbage collector keep the process small, and returns a function that ends that. The limit is soft, so a
// database with many millions of keys only takes longer. A lower limit, such as GOMEMLIMIT's, stays.
func limitMemory() (end func()) {
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, leanMemory))
	return func() { debug.SetMemoryLimit(before) }
}
