// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestPeakMemory: a program smaller than this one must be measured as smaller.
func TestPeakMemory(t *testing.T) {
	ballast := make([]byte, 64<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	peak, err := peakMemory("/bin/true")
	if err != nil {
		t.Skip(err) // where nothing may be traced
	}
	if peak <= 0 || peak > 16 {
		t.Errorf("%.1f MiB", peak)
	}
	if _, err := peakMemory("/bin/false"); err == nil {
		t.Error("a program that fails is measured")
	}
	_ = ballast[0]
}
