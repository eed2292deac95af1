// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// The rows of the table, with their units.
const (
	rowInit    = "init to the end, s"
	rowCerts   = "init phase certs all, s"
	rowChecks  = "init phase preflight, s"
	rowVersion = "version, ms"
	rowMemory  = "version, MiB"
	rowSize    = "binary, MB"

	rowInitJoin   = "init + join, s"
	rowNodesReady = "both nodes Ready, s"
	rowPodsReady  = "all Pods Ready, s"
	rowRenew      = "certs renew --restart, s"

	rowWorker   = "worker join to registration, s"
	rowPlane    = "control-plane join to the end, s"
	rowMany     = "20 joins at once, s"
	rowManyCPU  = "  the API server's processor time, s"
	rowManyAsks = "  the API server's requests"

	rowPlan  = "upgrade plan, s"
	rowApply = "upgrade apply, s"
	rowGap   = "  the longest time without the API, s"
	rowNode  = "upgrade node on a worker, s"

	rowChange    = "a flag of the API server, by reconfigure or by hand, s"
	rowChangeGap = "  the longest time without the API while it changes, s"

	rowEtcd    = "upgrade apply of a patch for etcd, s"
	rowEtcdGap = "  the longest time without the API while etcd restarts, s"

	rowRecover = "etcd recover until a write succeeds, s (at most 20)"
	rowThree   = "  until etcd has three members again, s (at most 90)"
	rowRestore = "etcd restore: the longest time without the API, s (at most 15)"

	rowSave       = "snapshot of a 1 GiB etcd (kubeadm: etcdctl's), s"
	rowSaveMemory = "  memory, MiB (at most 64)"
	rowSaveWrites = "  the 99th percentile of writes, to that before (at most 1.10)"

	rowUp        = "up on a bare machine, s"
	rowUpPrepare = "  prepare, s"
	rowUpInit    = "  init, s"
	rowUpWait    = "  until the node is Ready and a Pod runs, s"
)

// rows are the table's lines in order.
var rows = []struct {
	name string
	goal float64 // the highest ratio, 0 for none
}{
	{rowInit, 0.60}, {rowCerts, 0.60}, {rowChecks, 0}, {rowVersion, 0.50}, {rowMemory, 0}, {rowSize, 0},
	{rowInitJoin, 0.60}, {rowNodesReady, 0.65}, {rowPodsReady, 0.85}, {rowRenew, 0},
	{rowWorker, 0.70}, {rowPlane, 0.50}, {rowMany, 0}, {rowManyCPU, 0}, {rowManyAsks, 0},
	{rowPlan, 0}, {rowApply, 0.40}, {rowGap, 0.30}, {rowNode, 0.50},
	{rowChange, 0}, {rowChangeGap, 0}, {rowEtcd, 0}, {rowEtcdGap, 0},
	{rowUp, 0}, {rowUpPrepare, 0}, {rowUpInit, 0}, {rowUpWait, 0},
	{rowRecover, 0}, {rowThree, 0}, {rowRestore, 0},
	{rowSave, 0}, {rowSaveMemory, 0}, {rowSaveWrites, 0},
}

// table collects measurements by row and program.
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

// print writes the medians, their ratio, and the slowest time.
func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "median\tSlipway\tkubeadm\tratio\tgoal\tSlipway's worst")
	for _, r := range rows {
		ours, theirs := t.values[r.name][programs[0]], t.values[r.name][programs[1]]
		if len(ours) == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t%.3g\t", r.name, median(ours))
		if len(theirs) > 0 {
			fmt.Fprintf(tw, "%.3g\t%.2f", median(theirs), median(ours)/median(theirs))
		} else {
			fmt.Fprint(tw, "\t")
		}
		goal := ""
		if r.goal > 0 {
			goal = fmt.Sprintf("%.2f", r.goal)
		}
		fmt.Fprintf(tw, "\t%s\t%.3g\n", goal, slices.Max(ours))
	}
	return tw.Flush()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
