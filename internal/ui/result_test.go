// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"
	"testing"
	"time"
)

// TestTable: a cell can't look like a row or a column of its own.
func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, "NAME\tROLE", [][]string{{"cp-1", "leader\nevil\tvoter"}, {"worker-long", ""}}); err != nil {
		t.Fatal(err)
	}
	if want := "NAME          ROLE\ncp-1          leader evil voter\nworker-long   \n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTime(t *testing.T) {
	at := time.Date(2026, 1, 2, 1, 4, 5, 6, time.FixedZone("", -2*60*60))
	if got := Time(at); got != "2026-01-02 03:04:05 UTC" {
		t.Error(got)
	}
}
