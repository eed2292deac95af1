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

// Operation is what a control plane does next.
type Operation string

// The steps, in their order.
const (
	Write   Operation = "write"   // its own file, with Step.Order
	Wait    Operation = "wait"    // for `slipway encryption` on the nodes Step.For
	Rewrite Operation = "rewrite" // all values, until all have the target's prefix
	Done    Operation = "done"
)

// Step is the next step of a control plane.
type Step struct {
	Do    Operation
	Order Order
	For   []string
}

// Values are all values in etcd.
type Values struct {
	// Others has the providers that wrote values, but for the target; empty if all values have the target's prefix.
	Others []string
}

// Next derives the step from the facts: the target; the order in this control plane's file, which its API server has loaded; the API
// servers, including its own; and the values in etcd, which are looked at only once nothing writes with another provider.
//
// All API servers can read a provider before any writes with it; all write with it before the values are rewritten; and no provider
// goes while a value may need it. A provider that values need all the same, such as those of a snapshot, comes back first.
func Next(target string, own Order, servers []Server, values func() (Values, error)) (Step, error) {
	lacking := func(has func(Order) bool) (names []string) {
		for _, s := range servers {
			if !has(s.Order) {
				names = append(names, s.Node)
			}
		}
		return names
	}
	reads := reading(target)
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
	v, err := values()
	if err != nil {
		return Step{}, err
	}
	if len(v.Others) > 0 {
		return rewriting(v.Others, own, lacking), nil
	}
	switch others := lacking(settled); {
	case !settled(own):
		return Step{Do: Write, Order: Only(target)}, nil
	case len(others) > 0:
		return Step{Do: Wait, For: others}, nil
	}
	return Step{Do: Done}, nil
}

// rewriting is the step to values of the target's provider only: all API servers can read those of the others first.
func rewriting(others []string, own Order, lacking func(func(Order) bool) []string) Step {
	for _, name := range others {
		if !reading(name)(own) {
			return Step{Do: Write, Order: own.Reading(name)}
		}
		if nodes := lacking(reading(name)); len(nodes) > 0 {
			return Step{Do: Wait, For: nodes}
		}
	}
	return Step{Do: Rewrite}
}

func reading(name string) func(Order) bool {
	return func(o Order) bool { return slices.Contains(o, name) }
}
