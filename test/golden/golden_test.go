// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"path/filepath"
	"testing"
)

// failing is a test that counts its failures.
type failing struct {
	testing.TB
	failed int
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed++ }

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dir", "out.txt")
	*update = true
	Check(t, file, "some text\n")
	*update = false
	Check(t, file, "some text\n")
	f := &failing{TB: t}
	if Check(f, file, "other text\n"); f.failed != 1 {
		t.Errorf("another text failed %d times", f.failed)
	}
}
