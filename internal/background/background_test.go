// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package background

import (
	"runtime"
	"testing"
)

// TestDo checks that only the work gets a lower priority.
func TestDo(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	within := 0
	Do(func() { within, err = niceness() })
	after, _ := niceness()
	if err != nil || within != max(before, nice) || after != before {
		t.Errorf("niceness %d within, %d afterwards, and %d before: %v", within, after, before, err)
	}
}

func TestReserve(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	restore := Reserve(before + 2)
	during := runtime.GOMAXPROCS(0)
	restore()
	if after := runtime.GOMAXPROCS(0); during != before+3 || after != before {
		t.Errorf("GOMAXPROCS %d before, %d meanwhile, %d afterwards", before, during, after)
	}
}
