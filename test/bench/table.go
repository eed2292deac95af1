// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// The rows of the table, by what is measured and in which unit.
const (
	rowInit    = "init to the end, s"
	rowCerts   = "init phase certs all, s"
	rowVersion = "version, ms"
	rowMemory  = "version, MiB"
	rowSize    = "binary, MB"
)

// goals are the ratios that each row shall not exceed, in the table's order.
var goals = []struct {
	row  string
	goal float64 // 0 for none
}{{rowInit, 0.60}, {rowCerts, 0.60}, {rowVersion, 0.50}, {rowMemory, 0.50}, {rowSize, 0}}

// table gathers measurements by row and program.
type table struct {
	values map[string]map[string][]float64
}

func newTable() *table { return &table{values: map[string]map[string][]float64{}} }

func (t *table) add(row, program string, value float64) {
	if t.values[row] == nil {
		t.values[row] = map[string][]float64{}
	}
	t.values[row][program] = append(t.values[row][program], value)
}

// print writes medians and their ratio.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "median\tSlipway\tpeer\tratio\tgoal")
	for _, g := range goals {
		ours, peers := median(t.values[g.row][programs[0]]), median(t.values[g.row][programs[1]])
		goal := ""
		if g.goal > 0 {
			goal = fmt.Sprintf("%.2f", g.goal)
		}
		fmt.Fprintf(tw, "%s\t%.3g\t%.3g\t%.2f\t%s\n", g.row, ours, peers, ours/peers, goal)
	}
	return tw.Flush()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
