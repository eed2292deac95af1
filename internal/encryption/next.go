// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import "slices"

// Server is an API server and the configuration it has loaded.
type Server struct {
	Node string
	// Order is nil if it has loaded none.
	Order Order
}

// Do is what a control plane does next.
type Do string

// The steps, in their order.
const (
	Write   Do = "write"   // its own file, with Step.Order
	Wait    Do = "wait"    // for `slipway encryption` on the nodes Step.For
	Rewrite Do = "rewrite" // all values, until all have the target's prefix
	Done    Do = "done"
)

// Step is the next step of a control plane.
type Step struct {
	Do    Do
	Order Order
	For   []string
}

// Next derives the step from the facts: the target; the order in this control plane's file, which its API server has loaded; the API
// servers, including its own; and whether all values have the target's prefix, which is asked only once nothing writes another.
//
// All API servers can read a provider before any writes with it; all write with it before the values are rewritten; and no provider
// goes while a value may need it.
func Next(target string, own Order, servers []Server, proven func() (bool, error)) (Step, error) {
	lacking := func(has func(Order) bool) (names []string) {
		for _, s := range servers {
			if !has(s.Order) {
				names = append(names, s.Node)
			}
		}
		return names
	}
	reads := func(o Order) bool { return slices.Contains(o, target) }
	writes := func(o Order) bool { return len(o) > 0 && o[0] == target }
	settled := func(o Order) bool { return slices.Equal(o, Only(target)) }
	switch others := lacking(reads); {
	case !reads(own):
		return Step{Do: Write, Order: own.Reading(target)}, nil
	case len(others) > 0:
		return Step{Do: Wait, For: others}, nil
	case !writes(own):
		return Step{Do: Write, Order: own.Writing(target)}, nil
	}
	if others := lacking(writes); len(others) > 0 {
		return Step{Do: Wait, For: others}, nil
	}
	ok, err := proven()
	switch others := lacking(settled); {
	case err != nil:
		return Step{}, err
	case !ok:
		return Step{Do: Rewrite}, nil
	case !settled(own):
		return Step{Do: Write, Order: Only(target)}, nil
	case len(others) > 0:
		return Step{Do: Wait, For: others}, nil
	}
	return Step{Do: Done}, nil
}
