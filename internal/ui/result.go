// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table writes rows in columns, under a header with columns separated by tabs. Cells may come from the cluster, so each gets one
// line.
func Table(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, header)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, text := range row {
			cells[i] = oneLine(text)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// Time is a time for people.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
