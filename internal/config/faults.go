// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one problem in the configuration. Its text never contains a token or a key.
type Fault struct {
	// File and Line locate the document; they're zero for the command line and for values that don't come from a file.
	File string
	Line int
	// Field is a path (networking.podSubnet) or flag (--pod-network-cidr), or empty if the whole document is at fault.
	Field string
	// Message says what is wrong and what would be right.
	Message string
}

// Error formats the fault as FILE:LINE: FIELD: message, without unknown parts.
func (f Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
		if f.Line > 0 {
			fmt.Fprintf(&b, "%d:", f.Line)
		}
		b.WriteByte(' ')
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Faults is every fault of a load: the command line's first, then by line. All loaders return this type for invalid input.
type Faults []Fault

// Error lists the faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// maxFaults ends the search: nobody reads more.
const maxFaults = 200

// findings collects faults and warnings. The zero value is ready to use.
type findings struct {
	faults   []Fault
	warnings []Fault
}

func (f *findings) fault(x Fault) {
	if !f.full() {
		f.faults = append(f.faults, x)
	}
}

func (f *findings) full() bool { return len(f.faults) >= maxFaults }

func (f *findings) warn(x Fault) { f.warnings = append(f.warnings, x) }

func (f *findings) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	faults := sorted(f.faults)
	if f.full() {
		faults = append(faults, Fault{Message: fmt.Sprintf("stopped after %d faults", maxFaults)})
	}
	return Faults(faults)
}

func (f *findings) warningTexts() []string {
	var texts []string
	for _, w := range sorted(f.warnings) {
		texts = append(texts, w.Error())
	}
	return texts
}

// sorted returns a sorted copy without duplicates: faults outside files first, then by line, then as found.
func sorted(list []Fault) []Fault {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(list)
}
