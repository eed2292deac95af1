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
	// File and Line locate the document. They are empty and 0 for a fault of the command line, or of a value
	// that does not come from a file.
	File string
	Line int
	// Field is the path of the field (networking.podSubnet) or the flag (--pod-network-cidr), or empty for a
	// fault of the whole document.
	Field string
	// Message says what is wrong and what would be right.
	Message string
}

// Error formats the fault as FILE:LINE: FIELD: message, without the parts that are not known.
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

// Faults is every fault that a load found: those of the command line first, then by line. All loaders return
// this type for invalid input.
type Faults []Fault

// Error lists the faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// maxFaults is where the search stops: nobody reads more.
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

// full reports whether the limit of faults has been reached.
func (f *findings) full() bool { return len(f.faults) >= maxFaults }

func (f *findings) warn(x Fault) { f.warnings = append(f.warnings, x) }

// err returns the faults as an error, or nil.
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

// warningTexts returns the warnings, formatted like faults.
func (f *findings) warningTexts() []string {
	var texts []string
	for _, w := range sorted(f.warnings) {
		texts = append(texts, w.Error())
	}
	return texts
}

// sorted returns a sorted copy without duplicates: first what is not in a file, then by line, then as found.
func sorted(list []Fault) []Fault {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(list)
}
