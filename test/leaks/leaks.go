// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaks makes a test package fail if its tests leave goroutines behind.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that are about to end may take: goleak itself waits a second, too little for a busy machine.
const patience = 30 * time.Second

// Main is for TestMain. It runs the tests and ends the program.
func Main(m *testing.M) {
	code := m.Run()
	if err := Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, "the tests have passed, but left goroutines behind:", err)
		code = 1
	}
	os.Exit(code)
}

// Find returns an error that shows the goroutines that are still there when patience is over.
func Find() (err error) {
	for deadline := time.Now().Add(patience); ; {
		if err = goleak.Find(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
