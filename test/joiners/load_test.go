// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joiners

import (
	"testing"
	"time"
)

func TestParseLoad(t *testing.T) {
	got := parseLoad(`# HELP process_cpu_seconds_total Total user and system CPU time.
process_cpu_seconds_total 12.5
apiserver_request_total{code="200",verb="GET"} 30
apiserver_request_total{code="201",verb="POST"} 1e+01
apiserver_request_duration_seconds_count{verb="GET"} 400
`)
	if want := (load{12500 * time.Millisecond, 40}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
