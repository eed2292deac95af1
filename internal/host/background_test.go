// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"runtime"
	"testing"
)

// TestInBackground, and nothing else is.
func TestInBackground(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	within := 0
	InBackground(func() { within, err = niceness() })
	after, _ := niceness()
	if err != nil || within != max(before, background) || after != before {
		t.Errorf("niceness %d within, %d afterwards, and %d before: %v", within, after, before, err)
	}
}
