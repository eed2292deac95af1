// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// cost is elapsed time and processor time.
type cost struct{ wall, cpu time.Duration }

func (c cost) plus(d cost) cost { return cost{c.wall + d.wall, c.cpu + d.cpu} }

// row is a line of the bill: a package, a test on real clusters, or the rest of a step.
type row struct {
	step, name string
	cost
	told  bool // reported by the test itself
	flaky bool
}

// bill is the cost of a run.
type bill struct {
	budget time.Duration
	rows   []row
	total  cost
	parts  time.Duration // spent on parts that later runs reuse
}

// cheap rows are added up.
const cheap = time.Second

// add takes a step's rows, its time, and the processor time that's in no row.
func (b *bill) add(s step, rows []row, spent cost) {
	b.total.wall += spent.wall
	if s.parts {
		b.parts += spent.wall
	}
	rest := row{step: s.name, name: "the step itself", cost: spent}
	if s.tests != nil {
		rest.name, rest.wall = "compiling and reporting", 0 // it overlaps with the rows
	}
	for _, r := range append(slices.Clone(rows), rest) {
		b.total.cpu += r.cpu
		b.rows = append(b.rows, r)
	}
}

// String returns the table, with the most processor time first, and the total against the budget.
func (b *bill) String() string {
	rows := slices.Clone(b.rows)
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Or(cmp.Compare(y.cpu, x.cpu), cmp.Compare(y.wall, x.wall)) })
	var out strings.Builder
	line := func(c cost, what string) { fmt.Fprintf(&out, "%9s %9s  %s\n", seconds(c.wall), seconds(c.cpu), what) }
	fmt.Fprintf(&out, "%9s %9s  %s\n", "wall", "processor", "step: package or test")
	var rest cost
	others := 0
	for _, r := range rows {
		if r.cpu < cheap && r.wall < 10*cheap {
			rest = rest.plus(r.cost)
			others++
			continue
		}
		line(r.cost, r.step+": "+r.name)
	}
	if others > 0 {
		line(rest, fmt.Sprintf("%d cheaper rows", others))
	}
	return out.String() + b.verdict()
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// verdict returns the last lines: the total, and its comparison with the budget.
func (b *bill) verdict() string {
	spent := b.total.wall - b.parts
	text := fmt.Sprintf("total: %s, %s of processor time", short(b.total.wall), short(b.total.cpu))
	if b.parts > 10*time.Second {
		text += fmt.Sprintf("; without making the lab's parts: %s", short(spent))
	}
	switch {
	case b.budget == 0:
		return text + "\n"
	case spent > b.budget:
		return fmt.Sprintf("%s\nOVER BUDGET by %s: %s is the limit. docs/testing.md says what to do about it.\n", text, short(spent-b.budget), short(b.budget))
	}
	return fmt.Sprintf("%s\nwithin the budget of %s\n", text, short(b.budget))
}

func short(d time.Duration) string { return d.Round(time.Second).String() }
