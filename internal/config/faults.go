// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with the configuration. Its text never
// holds a token or a key.
type Fault struct {
	// File and Line say where the document is; empty and 0 for a fault of the
	// command line, or of a value that comes from no file.
	File string
	Line int
	// Field is the path of the field (networking.podSubnet), or the flag
	// (--pod-network-cidr); empty for a fault of the whole document.
	Field string
	// Message says what is wrong and what would be right.
	Message string
}

// Error formats the fault as FILE:LINE: FIELD: message, leaving out what is
// not known.
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

// Faults is every fault that a load has found, those of the command line
// first, then by line. It is the type of error that all loaders return for
// bad input.
type Faults []Fault

// Error lists the faults, one a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// findings gathers what a load has to say. The zero value is ready to use.
type findings struct {
	faults   []Fault
	warnings []string
}

func (f *findings) fault(x Fault) { f.faults = append(f.faults, x) }

// warn formats a warning with the same prefix that a fault would have.
func (f *findings) warn(x Fault) { f.warnings = append(f.warnings, x.Error()) }

// err returns the faults as an error, sorted, or nil.
func (f *findings) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(f.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return Faults(slices.Compact(f.faults))
}
