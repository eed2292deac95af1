// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !man

package main

import (
	"os"
	"runtime/debug"
)

func main() {
	tuneGC()
	os.Exit(run())
}

// tuneGC lets the heap, of about 10 MiB, grow fivefold before the garbage collector runs: a plan then takes an eighth less
// CPU time, and 7 MiB more memory. From 256 MiB on, the collector runs as often as it must. GOGC and GOMEMLIMIT go before both.
func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(256 << 20)
	}
}
