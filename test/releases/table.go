// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// factKey names one fact; internal/releases describes the kinds and names.
type factKey struct{ kind, name, program string }

// table has the state of each fact in each release of its program; "-" if it doesn't exist there.
type table struct {
	inputs map[string][2]string // by minor release: version and hash, see inputs
	facts  map[factKey][]string
}

const (
	absent    = "-"
	unchanged = "="
)

const head = `# What each minor release of Kubernetes and of etcd knows. Made by: go run ./test/releases -write
# Each row: a kind of fact, its name, the programs that it is about (*: all but etcd), and its state in each release: of etcd
# in the order of the rows "etcd", of the others in that of the rows "release". These name the version, and the hash of what
# that column was made from. "-": does not exist; "=": as in the release before.
`

func (t *table) set(key factKey, column int, state string) {
	if t.facts[key] == nil {
		t.facts[key] = slices.Repeat([]string{absent}, len(columns(key.program)))
	}
	t.facts[key][column] = state
}

// clear removes programs' facts in a release.
func (t *table) clear(column int, list []string) {
	for key, states := range t.facts {
		if slices.Contains(list, key.program) {
			states[column] = absent
		}
	}
}

// row is a line of the file. Programs with the same fact share a row.
type row struct{ kind, name, programs, states string }

func (t *table) String() string {
	var out strings.Builder
	out.WriteString(head)
	for _, m := range kubernetes {
		fmt.Fprintf(&out, "release\t%s\t%s\t%s\n", m.minor, t.inputs[m.minor][0], t.inputs[m.minor][1])
	}
	for _, m := range etcds {
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\n", etcd, m.minor, t.inputs[m.minor][0], t.inputs[m.minor][1])
	}
	for _, r := range t.rows() {
		fmt.Fprintf(&out, "%s\t%s\t%s\t%s\n", r.kind, r.name, r.programs, r.states)
	}
	return out.String()
}

func (t *table) rows() []row {
	byState := map[row][]string{}
	for key, states := range t.facts {
		if !slices.ContainsFunc(states, func(s string) bool { return s != absent }) {
			continue
		}
		r := row{kind: key.kind, name: key.name, states: strings.Join(shorten(states), "\t")}
		if key.program == etcd {
			r.programs = etcd // never shares a row: * means all of Kubernetes' programs
		}
		byState[r] = append(byState[r], key.program)
	}
	var rows []row
	for r, of := range byState {
		switch {
		case r.programs == etcd:
		case len(of) == len(programs):
			r.programs = "*"
		default:
			slices.SortFunc(of, func(a, b string) int { return slices.Index(programs, a) - slices.Index(programs, b) })
			r.programs = strings.Join(of, ",")
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.programs, b.programs))
	})
	return rows
}

// shorten writes "=" for a state that's the same as in the release before.
func shorten(states []string) []string {
	short := slices.Clone(states)
	for i := len(short) - 1; i > 0; i-- {
		if short[i] == short[i-1] && short[i] != absent {
			short[i] = unchanged
		}
	}
	return short
}

// parse reads String's output.
func parse(text string) (*table, error) {
	t := &table{inputs: map[string][2]string{}, facts: map[factKey][]string{}}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case (fields[0] == "release" || fields[0] == etcd) && len(fields) == 4:
			t.inputs[fields[1]] = [2]string{fields[2], fields[3]}
		case len(fields) > 3 && len(fields) == 3+len(columns(fields[2])):
			t.row(fields[0], fields[1], fields[2], fields[3:])
		default:
			return nil, errors.Errorf("unknown line %q", line)
		}
	}
	return t, nil
}

func (t *table) row(kind, name, of string, states []string) {
	list := strings.Split(of, ",")
	if of == "*" {
		list = programs
	}
	for column, state := range states {
		if state == unchanged {
			states[column] = states[column-1]
		}
		for _, program := range list {
			t.set(factKey{kind, name, program}, column, states[column])
		}
	}
}
