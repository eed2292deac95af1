// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// TestLines shows the lines that scripts read.
func TestLines(t *testing.T) {
	var said, results bytes.Buffer
	u := NewLines(&said, &results)
	in, end := u.Start("certs/ca")
	in.Printf("Generating %q", "ca")
	in.Warnf("the clock is %s", "slow")
	in.Warn("the clock is slow", "set it")
	in.Nextf("Copy %s", "ca.crt")
	in.Result("abc")
	end(nil)
	u.Skip("addon", "--skip-phases")
	u.Warn("swap is on", "")
	WarnError(in, errors.Wrap(fault.New("no answer", "start it"), "ask"))
	want := `[certs] Generating "ca"
[certs] [WARNING] the clock is slow
[certs] [WARNING] the clock is slow
[certs] [WARNING]   set it
[certs] Copy ca.crt
[addon] skipped: --skip-phases
[WARNING] swap is on
[certs] [WARNING] ask: no answer
[certs] [WARNING]   start it
`
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if results.String() != "abc\n" {
		t.Errorf("results %q", results.String())
	}
}
