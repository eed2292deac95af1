// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// NewUnfinishedCheck is the check UnfinishedChange of every other workflow that writes the files of a change: to put that back
// later would undo what such a workflow has done since. A change in a state of except is no obstacle.
func NewUnfinishedCheck(env *step.Env, except ...State) preflight.Check {
	return preflight.Check{Name: fault.UnfinishedChange, Description: "no change of this node's configuration is unfinished", Run: func(context.Context, preflight.View) []fault.Finding {
		if err := RefuseUnfinished(env, except...); err != nil {
			found := fault.Of(err)
			if found.Remedy != "" {
				found.Remedy += "; if that can't work, " + fault.Ignoring(fault.UnfinishedChange) + " continues here"
			}
			return []fault.Finding{found}
		}
		return nil
	}}
}

// RefuseUnfinished fails if a change of this node is unfinished, for workflows without checks.
func RefuseUnfinished(env *step.Env, except ...State) error {
	unfinished, err := Unfinished(env)
	if err != nil || unfinished == nil || slices.Contains(except, unfinished.State) {
		return err
	}
	return unfinishedError(unfinished)
}

func unfinishedError(r *Record) error {
	of := "the change to this node's configuration that began at " + ui.Time(r.Began) + " is unfinished (" + string(r.State) + ")"
	if r.AwaitsConfirmation() {
		return fault.New(of, "`slipway reconfigure --confirm` keeps it, and `slipway reconfigure --revert` puts it back")
	}
	return fault.New(of, "wait until systemd has put it back or stored it (journalctl -u slipway-watch), or run `slipway reconfigure node`, which ends it first")
}
