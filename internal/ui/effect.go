// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import "time"

// Effect is what a run causes, or leaves to do, beyond its steps. People read the text, programs the rest.
type Effect struct {
	Text string
	// Changes are the changed fields of stored configurations, each with its ConfigMap.
	Changes []Field
	// Restarts are this node's programs, and the cluster's workloads, that restart.
	Restarts []string
	// APIAway is how long no client reaches the API.
	APIAway time.Duration
	// Others are the nodes that don't have the change afterwards.
	Others []OtherNode
}

// Field is a field of a stored configuration.
type Field struct {
	Source string `json:"source"`
	Path   string `json:"field"`
}

// OtherNode is a node where a command of this program has to run, and what that restarts there.
type OtherNode struct {
	Name     string   `json:"name"`
	Command  string   `json:"command"`
	Restarts []string `json:"restarts,omitempty"`
}

// SayEffect reports e to u: a plan keeps all of it, every other UI shows the text, as a next step if it's about other nodes.
func SayEffect(u UI, e Effect) {
	plan, is := u.(interface{ Effect(e Effect) })
	switch {
	case is:
		plan.Effect(e)
	case len(e.Others) > 0:
		u.Nextf("%s", e.Text)
	default:
		u.Printf("%s", e.Text)
	}
}
